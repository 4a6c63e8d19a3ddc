#include "realrun/compute/cuda/device_code.cuh"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr int kColumns = 32;
constexpr int kRowThreads = 8;
constexpr std::size_t kRowsOfAChunk = 256;

std::size_t chunks_of(std::size_t rows) {
  return std::max<std::size_t>(1, (rows + kRowsOfAChunk - 1) / kRowsOfAChunk);
}

// A block sums one chunk of rows in 32 columns.
__global__ void sum_chunks(const float* x, const float* factor, float* partial, Extent extent) {
  __shared__ float sums[kRowThreads][kColumns];
  const std::size_t column = static_cast<std::size_t>(blockIdx.x) * kColumns + threadIdx.x;
  const std::size_t first = static_cast<std::size_t>(blockIdx.y) * kRowsOfAChunk;
  const std::size_t last = min(first + kRowsOfAChunk, extent.rows);
  float sum = 0.0F;
  if (column < extent.columns) {
    for (std::size_t row = first + threadIdx.y; row < last; row += kRowThreads) {
      const std::size_t index = row * extent.columns + column;
      sum += factor == nullptr ? x[index] : x[index] * factor[index];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= extent.columns) return;
  for (int row = 1; row < kRowThreads; ++row) sum += sums[row][threadIdx.x];
  partial[blockIdx.y * extent.columns + column] = sum;
}

__global__ void add_chunks(const float* partial, std::size_t chunks, float* sums, std::size_t columns) {
  for (std::size_t column = first_index(); column < columns; column += index_stride()) {
    float sum = 0.0F;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * columns + column];
    sums[column] += sum;
  }
}

}  // namespace

std::size_t column_scratch(Extent extent) {
  return chunks_of(extent.rows) * extent.columns;
}

cudaError_t add_up_rows(const float* x, const float* factor, float* sums, Extent extent, float* scratch,
                        cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  const std::size_t chunks = chunks_of(extent.rows);
  const dim3 grid(static_cast<unsigned>((extent.columns + kColumns - 1) / kColumns), static_cast<unsigned>(chunks));
  FLOPCAST_LAUNCH(sum_chunks, grid, (dim3(kColumns, kRowThreads)), 0, stream)(x, factor, scratch, extent);
  FLOPCAST_LAUNCH(add_chunks, blocks_for(extent.columns), (kThreads), 0, stream)(scratch, chunks, sums, extent.columns);
  return cudaGetLastError();
}

}  // namespace flopcast::realrun::cuda
