#pragma once

#include <cstddef>
#include <cstdint>

namespace flopcast {

enum class Optimizer;  // model/workload/training.hpp, which nvcc does not read

}  // namespace flopcast

namespace flopcast::realrun {

/// sgd   v = momentum·v + g; w -= rate·v
/// adam  m = b1·m + (1-b1)·g; v = b2·v + (1-b2)·g²; w -= rate · m/(1-b1^t) / (sqrt(v/(1-b2^t)) + epsilon)
///       (Kingma & Ba 1412.6980, algorithm 1)
struct UpdateRule {
  Optimizer kind = {};  ///< adam
  float rate = 1e-3F;
  float momentum = 0.9F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;

  /// Floats of state for each weight.
  int states() const;
};

/// A well mixed 64-bit hash (splitmix64, Steele et al. 2014); the one source of chance in a run.
constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

/// Initial values of a rectangle of a matrix. Each depends on `start` and its place in the whole matrix only, so every
/// partition of the matrix, and every device, draws the same bits. Uniform around 0 with the standard deviation
/// `deviation`, or the constant `value` where that is 0.
struct Draw {
  std::uint64_t start = 0;
  std::size_t first = 0;    ///< place of the first element in the whole matrix, row by row
  std::size_t columns = 1;  ///< of the rectangle
  std::size_t whole_columns = 1;
  float value = 0;
  float deviation = 0;

  /// Element number `index` of the rectangle.
  constexpr float at(std::size_t index) const {
    if (deviation == 0) return value;
    const std::size_t place = first + index / columns * whole_columns + index % columns;
    // 53 bits in [-1, 1); a uniform variable on [-a, a] has the standard deviation a / sqrt(3).
    constexpr double kSquareRootOf3 = 1.7320508075688772;
    const double unit = static_cast<double>(mix(start + place) >> 11U) * 0x1p-52 - 1.0;
    return static_cast<float>(unit * kSquareRootOf3 * static_cast<double>(deviation));
  }
};

/// How a GPU multiplies matrices. Sums have 32 bits, and so has everything between the products.
enum class GemmPrecision : std::uint8_t {
  kFp32,
  kTf32,  ///< factors rounded to 10 bits behind the point
  kBf16,  ///< factors rounded to bfloat16
  kFp8,   ///< linears of blocks in 8 bits: e4m3, gradients e5m2, scaled by tensor; the rest as kBf16
};

}  // namespace flopcast::realrun

// What the kernels take, for those who ask before any GPU is touched: no header of CUDA is needed here.

namespace flopcast::realrun::cuda {

/// Columns of an attention head.
inline constexpr int kLargestHead = 128;
/// Inputs of a reduction: members of a group of virtual devices.
inline constexpr int kMostInputs = 16;

}  // namespace flopcast::realrun::cuda
