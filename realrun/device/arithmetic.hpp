#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

// Arithmetic shared by hosts and GPUs; nvcc compiles it for both.
#ifdef __CUDACC__
#define FLOPCAST_ANYWHERE __host__ __device__
#else
#define FLOPCAST_ANYWHERE
#endif

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

  /// Floats of optimizer state per weight.
  int states() const;
};

/// The weights, gradients and results of one optimizer step; the results may overwrite the weights.
struct Update {
  const float* weights;
  const float* gradients;
  float* updated;
  std::size_t count;
};

FLOPCAST_ANYWHERE inline void update_by_sgd(const UpdateRule& rule, const Update& update, float* velocity,
                                            std::size_t index) {
  const float speed = rule.momentum * velocity[index] + update.gradients[index];
  velocity[index] = speed;
  update.updated[index] = update.weights[index] - rule.rate * speed;
}

/// Adam's rule for one step.
struct AdamStep {
  AdamStep(const UpdateRule& of, int step)
      : rule(of),
        mean_correction(1.0F - std::pow(of.beta1, static_cast<float>(step))),
        square_correction(1.0F - std::pow(of.beta2, static_cast<float>(step))) {}

  FLOPCAST_ANYWHERE void update(const Update& update, float* mean, float* square, std::size_t index) const {
    const float gradient = update.gradients[index];
    const float m = rule.beta1 * mean[index] + (1.0F - rule.beta1) * gradient;
    const float v = rule.beta2 * square[index] + (1.0F - rule.beta2) * gradient * gradient;
    mean[index] = m;
    square[index] = v;
    const float deviation = std::sqrt(v / square_correction) + rule.epsilon;
    update.updated[index] = update.weights[index] - rule.rate * (m / mean_correction) / deviation;
  }

  UpdateRule rule;
  float mean_correction;
  float square_correction;
};

/// Clamps an exponent: beyond the limit, shares round to exactly 0 and 1, and the exponential stays finite.
template <class T>
FLOPCAST_ANYWHERE T within_exponents(T x) {
  constexpr T kFar = T(60);
  return std::min(kFar, std::max(-kFar, x));
}

/// 1 / (1 + e^-x).
template <class T>
FLOPCAST_ANYWHERE T logistic(T x) {
  return T(1) / (T(1) + std::exp(within_exponents(-x)));
}

/// x times the logistic function of 2·√(2/π)·(x + 0.044715 x³), which is (1 + tanh(√(2/π)·…)) / 2.
template <class T>
class GeluPoint {
 public:
  FLOPCAST_ANYWHERE explicit GeluPoint(T x) : x_(x) {
    const T power = std::exp(within_exponents(-kSlope * (x + kCubic * x * x * x)));
    share_ = T(1) / (T(1) + power);
    rest_ = power * share_;
  }
  FLOPCAST_ANYWHERE T value() const { return x_ * share_; }
  FLOPCAST_ANYWHERE T derivative() const {
    return share_ * (T(1) + x_ * rest_ * kSlope * (T(1) + T(3) * kCubic * x_ * x_));
  }

 private:
  static constexpr T kCubic = T(0.044715);
  static constexpr T kSlope = T(1.59576912160573071176);  // 2·√(2/π)

  T x_;
  T share_;
  T rest_;  // 1 - share
};

/// See Kernels::gated_silu: element `index` of y, and the gradients of the two elements of x it depends on.
template <class T>
FLOPCAST_ANYWHERE void gated_silu_at(const T* x, T* y, std::size_t index) {
  const T gate = x[2 * index];
  y[index] = gate * logistic(gate) * x[2 * index + 1];
}
template <class T>
FLOPCAST_ANYWHERE void gated_silu_gradient_at(const T* dy, const T* x, T* dx, std::size_t index) {
  const T gate = x[2 * index];
  const T share = logistic(gate);
  dx[2 * index] = dy[index] * x[2 * index + 1] * share * (T(1) + gate * (T(1) - share));
  dx[2 * index + 1] = dy[index] * gate * share;
}

/// A well-mixed 64-bit hash (splitmix64, Steele et al. 2014); the only source of randomness in a run.
constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

/// Initial values of a rectangle of a matrix. Each value depends only on `start` and its position in the whole matrix,
/// so every partition of the matrix, and every device, draws the same bits. Uniform around 0 with standard deviation
/// `deviation`, or the constant `value` if that is 0.
struct Draw {
  std::uint64_t start = 0;
  std::size_t first = 0;    ///< position of the first element in the whole matrix, row by row
  std::size_t columns = 1;  ///< of the rectangle
  std::size_t whole_columns = 1;
  float value = 0;
  float deviation = 0;

  /// Element `index` of the rectangle.
  constexpr float at(std::size_t index) const {
    if (deviation == 0) return value;
    const std::size_t place = first + index / columns * whole_columns + index % columns;
    // 53 bits in [-1, 1); a uniform variable on [-a, a] has the standard deviation a / sqrt(3).
    constexpr double kSquareRootOf3 = 1.7320508075688772;
    const double unit = static_cast<double>(mix(start + place) >> 11U) * 0x1p-52 - 1.0;
    return static_cast<float>(unit * kSquareRootOf3 * static_cast<double>(deviation));
  }
};

/// How a GPU multiplies matrices. Sums, and everything between the products, are 32-bit.
enum class GemmPrecision : std::uint8_t {
  kFp32,
  kTf32,  ///< factors rounded to 10 mantissa bits
  kBf16,  ///< factors rounded to bfloat16
  kFp8,   ///< linears of blocks in 8 bits: e4m3, gradients e5m2, scaled per tensor; everything else as kBf16
};

}  // namespace flopcast::realrun

// Limits of the kernels, for checks made before any GPU is opened: no CUDA header is needed.

namespace flopcast::realrun::cuda {

/// Most columns of an attention head.
inline constexpr int kLargestHead = 128;
/// Most inputs of a reduction: members of a group of virtual devices.
inline constexpr int kMostInputs = 16;

}  // namespace flopcast::realrun::cuda
