#include "realrun/compute/cuda/check.hpp"

#include <fmt/format.h>

#include "model/error/error.hpp"

namespace flopcast::realrun::cuda {

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  throw EnvironmentError(
      fmt::format("CUDA: {} failed: {} ({})", call, cudaGetErrorString(result), cudaGetErrorName(result)));
}

}  // namespace flopcast::realrun::cuda
