#include "realrun/compute/cuda/device_code.cuh"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr float kLowest = -3.402823466e+38F;

// A block a row, here and below.
__global__ void find_maxima(const float* logits, float* maxima, std::size_t columns) {
  const float* row = logits + blockIdx.x * columns;
  float largest = kLowest;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) largest = fmaxf(largest, row[column]);
  largest = over_block(largest, kLowest, Maximum{});
  if (threadIdx.x == 0) maxima[blockIdx.x] = largest;
}

__global__ void take_exponentials(const float* logits, const float* maxima, const int* targets, int first,
                                  float* values, float* sums, float* target_logits, std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const float* given = logits + row * columns;
  const float maximum = maxima[row];
  float sum = 0.0F;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float value = expf(given[column] - maximum);
    values[row * columns + column] = value;
    sum += value;
  }
  sum = over_block(sum, 0.0F, Sum{});
  if (threadIdx.x != 0) return;
  sums[row] = sum;
  const long place = static_cast<long>(targets[row]) - first;
  const bool held = place >= 0 && place < static_cast<long>(columns);
  target_logits[row] = held ? given[place] - maximum : 0.0F;
}

__global__ void divide_rows(float* values, const float* sums, Extent extent) {
  for (std::size_t index = first_index(); index < extent.size(); index += index_stride()) {
    values[index] /= sums[index / extent.columns];
  }
}

__global__ void mean_loss(const float* sums, const float* target_logits, double* mean, std::size_t rows) {
  double sum = 0.0;
  for (std::size_t row = threadIdx.x; row < rows; row += blockDim.x) {
    sum += log(static_cast<double>(sums[row])) - static_cast<double>(target_logits[row]);
  }
  sum = over_block(sum, 0.0, Sum{});
  if (threadIdx.x == 0) *mean = sum / static_cast<double>(rows);
}

__global__ void subtract_targets(const float* probabilities, const int* targets, int first, float weight,
                                 float* gradient, Extent extent) {
  for (std::size_t index = first_index(); index < extent.size(); index += index_stride()) {
    const long place = static_cast<long>(targets[index / extent.columns]) - first;
    const bool is_target = place == static_cast<long>(index % extent.columns);
    gradient[index] = weight * probabilities[index] - (is_target ? weight : 0.0F);
  }
}

}  // namespace

cudaError_t row_maxima(const float* logits, float* maxima, Extent extent, cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(find_maxima, static_cast<unsigned>(extent.rows), (kThreads), 0, stream)
  (logits, maxima, extent.columns);
  return cudaGetLastError();
}

cudaError_t exponentials(const float* logits, const float* maxima, const int* targets, int first, float* values,
                         float* sums, float* target_logits, Extent extent, cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(take_exponentials, static_cast<unsigned>(extent.rows), (kThreads), 0, stream)
  (logits, maxima, targets, first, values, sums, target_logits, extent.columns);
  return cudaGetLastError();
}

cudaError_t normalise(float* values, const float* sums, const float* target_logits, double* mean, Extent extent,
                      cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(divide_rows, blocks_for(extent.size()), (kThreads), 0, stream)(values, sums, extent);
  FLOPCAST_LAUNCH(mean_loss, 1, (kThreads), 0, stream)(sums, target_logits, mean, extent.rows);
  return cudaGetLastError();
}

cudaError_t cross_entropy_gradient(const float* probabilities, const int* targets, int first, float weight,
                                   float* gradient, Extent extent, cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(subtract_targets, blocks_for(extent.size()), (kThreads), 0, stream)
  (probabilities, targets, first, weight, gradient, extent);
  return cudaGetLastError();
}

}  // namespace flopcast::realrun::cuda
