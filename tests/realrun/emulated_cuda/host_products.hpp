#pragma once

#include "realrun/compute/cuda/matrix_products.hpp"

namespace flopcast::realrun::cuda {

/// Products of matrices in the host's memory.
class HostProducts : public MatrixProducts {
 public:
  void multiply(const Product& product, const void* a, const void* b, void* result, float factor) override;
};

}  // namespace flopcast::realrun::cuda
