#include "realrun/compute/cuda/device_code.cuh"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

__global__ void look_up_rows(const int* tokens, int first, int count, const float* table, float* rows,
                             std::size_t width) {
  const std::size_t row = blockIdx.x;
  const int place = tokens[row] - first;
  const bool held = place >= 0 && place < count;
  for (std::size_t column = threadIdx.x; column < width; column += blockDim.x) {
    rows[row * width + column] = held ? table[static_cast<std::size_t>(place) * width + column] : 0.0F;
  }
}

// A block a row of the table that any token has.
__global__ void add_groups(const int* order, const int* starts, const int* places, const float* rows, float* table,
                           std::size_t width) {
  const int group = static_cast<int>(blockIdx.x);
  float* entry = table + static_cast<std::size_t>(places[group]) * width;
  for (std::size_t column = threadIdx.x; column < width; column += blockDim.x) {
    float sum = 0.0F;
    for (int index = starts[group]; index < starts[group + 1]; ++index) {
      sum += rows[static_cast<std::size_t>(order[index]) * width + column];
    }
    entry[column] += sum;
  }
}

__global__ void add_position_rows(const float* x, Positions positions, const float* table, float* y, Extent extent) {
  for (std::size_t index = first_index(); index < extent.size(); index += index_stride()) {
    const std::size_t row = index / extent.columns;
    const std::size_t position = (positions.shift + row) % positions.length + positions.first;
    y[index] = x[index] + table[position * extent.columns + index % extent.columns];
  }
}

// A thread an element of the table, over the rows that lie at its position.
__global__ void sum_positions(const float* dy, Positions positions, float* table, Extent extent) {
  const std::size_t count = positions.length * extent.columns;
  for (std::size_t index = first_index(); index < count; index += index_stride()) {
    const std::size_t position = index / extent.columns;
    const std::size_t column = index % extent.columns;
    const std::size_t shift = positions.shift % positions.length;
    float sum = 0.0F;
    for (std::size_t row = (position + positions.length - shift) % positions.length; row < extent.rows;
         row += positions.length) {
      sum += dy[row * extent.columns + column];
    }
    table[(position + positions.first) * extent.columns + column] += sum;
  }
}

}  // namespace

cudaError_t look_up(const int* tokens, int first, int count, const float* table, float* rows, Extent extent,
                    cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(look_up_rows, static_cast<unsigned>(extent.rows), (kThreads), 0, stream)
  (tokens, first, count, table, rows, extent.columns);
  return cudaGetLastError();
}

cudaError_t add_to_table(const int* order, const int* starts, const int* places, int groups, const float* rows,
                         float* table, std::size_t width, cudaStream_t stream) {
  if (groups == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(add_groups, static_cast<unsigned>(groups), (kThreads), 0, stream)
  (order, starts, places, rows, table, width);
  return cudaGetLastError();
}

cudaError_t add_positions(const float* x, Positions positions, const float* table, float* y, Extent extent,
                          cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(add_position_rows, blocks_for(extent.size()), (kThreads), 0, stream)(x, positions, table, y, extent);
  return cudaGetLastError();
}

cudaError_t add_to_positions(const float* dy, Positions positions, float* table, Extent extent, cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(sum_positions, blocks_for(positions.length * extent.columns), (kThreads), 0, stream)
  (dy, positions, table, extent);
  return cudaGetLastError();
}

}  // namespace flopcast::realrun::cuda
