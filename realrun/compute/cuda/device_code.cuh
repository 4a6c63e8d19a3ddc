#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

// Under another compiler than nvcc, tests/realrun/emulated_cuda runs the kernels on a CPU; it has these two of its own.
#ifndef FLOPCAST_LAUNCH
/// FLOPCAST_LAUNCH(kernel, grid, block, shared_bytes, stream)(arguments...);
#define FLOPCAST_LAUNCH(kernel, grid, block, shared_bytes, stream) kernel<<<grid, block, shared_bytes, stream>>>
/// Declares a pointer to the floats of shared memory that the launch asked for.
#define FLOPCAST_DYNAMIC_SHARED(name) extern __shared__ __align__(16) float name[]
#endif

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;

/// Enough blocks for `work` items of one a thread, in a loop over the grid beyond that.
inline unsigned blocks_for(std::size_t work) {
  constexpr std::size_t kMostBlocks = 16384;
  return static_cast<unsigned>(std::clamp<std::size_t>((work + kThreads - 1) / kThreads, 1, kMostBlocks));
}

/// Queues a kernel; `name` is what an error calls it.
template <class... Parameters, class... Arguments>
void queue(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
           Arguments... arguments) {
  FLOPCAST_LAUNCH(kernel, grid, block, 0, stream)(arguments...);
  check(cudaGetLastError(), name);
}

/// A kernel whose threads go over `count` items by first_index() and index_stride(); where there are none, nothing.
template <class... Parameters, class... Arguments>
void queue_over(const char* name, void (*kernel)(Parameters...), std::size_t count, cudaStream_t stream,
                Arguments... arguments) {
  if (count > 0) queue(name, kernel, blocks_for(count), kThreads, stream, arguments...);
}

/// A kernel with a block a row of that matrix.
template <class... Parameters, class... Arguments>
void queue_rows(const char* name, void (*kernel)(Parameters...), Extent extent, cudaStream_t stream,
                Arguments... arguments) {
  if (extent.size() > 0) queue(name, kernel, static_cast<unsigned>(extent.rows), kThreads, stream, arguments...);
}

inline __device__ std::size_t first_index() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
inline __device__ std::size_t index_stride() {
  return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

/// Over the threads of a block of at most 1024; every thread gets the result. All threads must call.
template <class Operation, class T>
__device__ T over_block(T value, T neutral, Operation operation) {
  __shared__ T of_warp[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  __syncthreads();  // of_warp may still be read from a call before
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = lane < (blockDim.x + kWarp - 1) / kWarp ? of_warp[lane] : neutral;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

}  // namespace flopcast::realrun::cuda
