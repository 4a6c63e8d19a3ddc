#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

// Under compilers other than nvcc, tests/realrun/emulated_cuda runs the kernels on a CPU and defines its own versions.
#ifndef FLOPCAST_LAUNCH
/// FLOPCAST_LAUNCH(kernel, grid, block, shared_bytes, stream)(arguments...);
#define FLOPCAST_LAUNCH(kernel, grid, block, shared_bytes, stream) kernel<<<grid, block, shared_bytes, stream>>>
/// Declares a pointer to the floats of shared memory that the launch requested.
#define FLOPCAST_DYNAMIC_SHARED(name) extern __shared__ __align__(16) float name[]

// Products on tensor cores, for compute capability 8.0 and later. Whole warps must call. With lane l, g = l / 4 and t =
// l % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"), two bfloat16 per register:
//   a, 16 × 16: rows g and g + 8 of columns 2t, 2t + 1, then the same rows of columns 2t + 8, 2t + 9
//   b, 16 × 8: rows 2t, 2t + 1, then 2t + 8, 2t + 9, of column g
//   sums, 16 × 8: columns 2t, 2t + 1 of row g, then of row g + 8

/// Two numbers rounded to nearest, ties to even; the first in the lower half.
inline __device__ std::uint32_t rounded_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// sums += a · b.
inline __device__ void multiply_tiles(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b_low,
                                      std::uint32_t b_high) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}
/// Loads four 8 × 8 matrices from shared memory. Lanes 0 to 7, 8 to 15, … give the addresses of their rows, 16 bytes
/// each, aligned. Register i receives columns 2t and 2t + 1 of row g of matrix i; transposed, rows 2t and 2t + 1 of
/// column g (PTX ISA, ldmatrix).
inline __device__ void load_tiles(std::uint32_t (&tiles)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
inline __device__ void load_tiles_transposed(std::uint32_t (&tiles)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
#endif

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;

/// Enough blocks for one item of `work` per thread; beyond the limit, kernels loop over the grid.
inline unsigned blocks_for(std::size_t work) {
  constexpr std::size_t kMostBlocks = 16384;
  return static_cast<unsigned>(std::clamp<std::size_t>((work + kThreads - 1) / kThreads, 1, kMostBlocks));
}

/// Queues a kernel; errors name it `name`.
template <class... Parameters, class... Arguments>
void queue(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
           Arguments... arguments) {
  FLOPCAST_LAUNCH(kernel, grid, block, 0, stream)(arguments...);
  check(cudaGetLastError(), name);
}

/// Queues a kernel whose threads iterate over `count` items by first_index() and index_stride(); does nothing for zero
/// items.
template <class... Parameters, class... Arguments>
void queue_over(const char* name, void (*kernel)(Parameters...), std::size_t count, cudaStream_t stream,
                Arguments... arguments) {
  if (count > 0) queue(name, kernel, blocks_for(count), kThreads, stream, arguments...);
}

/// Queues a kernel with one block per row of that matrix.
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

/// Reduces over the threads of a block of at most 1024; every thread gets the result. All threads must call.
template <class Operation, class T>
__device__ T over_block(T value, T neutral, Operation operation) {
  __shared__ T of_warp[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  __syncthreads();  // of_warp may still be read by an earlier call
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = lane < (blockDim.x + kWarp - 1) / kWarp ? of_warp[lane] : neutral;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

}  // namespace flopcast::realrun::cuda
