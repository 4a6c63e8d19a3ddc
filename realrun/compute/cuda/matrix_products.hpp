#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "realrun/interface.hpp"

namespace flopcast::realrun::cuda {

/// result (m × n, row-major) = factor · op(a) · op(b), += when `accumulate`. a is m × k as it enters the product and b
/// k × n; `transposed` says that they are stored the other way round. Rows without gaps.
struct Product {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;
  bool bfloat16 = false;  ///< a and b are; the result has 32 bits whatever they have
};

/// Multiplies matrices on one stream.
class MatrixProducts : public Interface {
 public:
  virtual void multiply(const Product& product, const void* a, const void* b, float* result, float factor) = 0;
};

}  // namespace flopcast::realrun::cuda
