#pragma once

#include <cuda_runtime_api.h>

namespace flopcast::realrun::cuda {

/// Throws EnvironmentError with the name of the call and CUDA's own words unless it went well.
void check(cudaError_t result, const char* call);

}  // namespace flopcast::realrun::cuda
