#pragma once

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
