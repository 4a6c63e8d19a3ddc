#pragma once

#include <cuda_runtime_api.h>

namespace flopcast::realrun::cuda {

/// Throws EnvironmentError with the name of the call and CUDA's own words unless it went well.
void check(cudaError_t result, const char* call);

/// Whether the device is past the event. Not being there yet is no error, nor is it left for the next launch to report.
bool has_reached(cudaEvent_t event);

}  // namespace flopcast::realrun::cuda
