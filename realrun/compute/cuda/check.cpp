#include "realrun/compute/cuda/check.hpp"

#include <fmt/format.h>

#include "model/error/error.hpp"

namespace flopcast::realrun::cuda {

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  throw EnvironmentError(
      fmt::format("CUDA: {} failed: {} ({})", call, cudaGetErrorString(result), cudaGetErrorName(result)));
}

bool has_reached(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(result, "cudaEventQuery");
  return true;
}

}  // namespace flopcast::realrun::cuda
