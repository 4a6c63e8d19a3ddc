#pragma once

#include <algorithm>
#include <cmath>

#include "cuda_runtime_api.h"
#include "tests/realrun/emulated_cuda/emulation.hpp"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

using flopcast::emulated::blockDim;
using flopcast::emulated::blockIdx;
using flopcast::emulated::dim3;
using flopcast::emulated::float4;
using flopcast::emulated::gridDim;
using flopcast::emulated::threadIdx;
using std::max;
using std::min;

inline void __syncthreads() {
  flopcast::emulated::meet();
}

template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int offset) {
  return flopcast::emulated::swap_with(value, offset);
}

inline float rsqrtf(float value) {
  return 1.0F / std::sqrt(value);
}

namespace flopcast::realrun::cuda {
using emulated::load_tiles;
using emulated::load_tiles_transposed;
using emulated::multiply_tiles;
using emulated::rounded_pair;
}  // namespace flopcast::realrun::cuda

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel /*kernel*/, cudaFuncAttribute /*attribute*/, int value) {
  return flopcast::emulated::allow_shared(value) ? cudaSuccess : cudaErrorInvalidValue;
}

#define FLOPCAST_LAUNCH(kernel, grid, block, shared_bytes, stream) \
  flopcast::emulated::launcher(grid, block, shared_bytes, [=](auto... arguments) { kernel(arguments...); })
#define FLOPCAST_DYNAMIC_SHARED(name) float* const name = flopcast::emulated::dynamic_shared()
