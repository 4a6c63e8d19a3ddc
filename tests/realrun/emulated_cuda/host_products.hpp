#pragma once

#include "realrun/compute/cuda/matrix_products.hpp"

namespace flopcast::realrun::cuda {

/// Matrix products in host memory.
class HostProducts : public MatrixProducts {
 public:
  void multiply(const Product& product, const void* a, const void* b, void* result, float factor) override;
};

}  // namespace flopcast::realrun::cuda
