#include "realrun/compute/cuda/device_code.cuh"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr float kEpsilon = 1e-5F;

// A block a row.
__global__ void normalise_rows(const float* x, const float* gain, const float* bias, float* normalised, float* scale,
                               float* y, std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const float* input = x + row * columns;
  const auto width = static_cast<float>(columns);
  float sum = 0.0F;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) sum += input[column];
  const float mean = over_block(sum, 0.0F, Sum{}) / width;
  float squares = 0.0F;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float distance = input[column] - mean;
    squares += distance * distance;
  }
  const float factor = 1.0F / sqrtf(over_block(squares, 0.0F, Sum{}) / width + kEpsilon);
  if (threadIdx.x == 0) scale[row] = factor;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float value = (input[column] - mean) * factor;
    normalised[row * columns + column] = value;
    y[row * columns + column] = gain[column] * value + bias[column];
  }
}

__global__ void input_gradient_rows(const float* dy, const float* normalised, const float* scale, const float* gain,
                                    float* dx, std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const float* given = dy + row * columns;
  const float* value = normalised + row * columns;
  const auto width = static_cast<float>(columns);
  float sum = 0.0F;
  float projection = 0.0F;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float scaled = given[column] * gain[column];
    sum += scaled;
    projection += scaled * value[column];
  }
  sum = over_block(sum, 0.0F, Sum{}) / width;
  projection = over_block(projection, 0.0F, Sum{}) / width;
  const float factor = scale[row];
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    dx[row * columns + column] = factor * (given[column] * gain[column] - sum - value[column] * projection);
  }
}

}  // namespace

cudaError_t layer_norm(const float* x, const float* gain, const float* bias, float* normalised, float* scale, float* y,
                       Extent extent, cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(normalise_rows, static_cast<unsigned>(extent.rows), (kThreads), 0, stream)
  (x, gain, bias, normalised, scale, y, extent.columns);
  return cudaGetLastError();
}

cudaError_t layer_norm_input_gradient(const float* dy, const float* normalised, const float* scale, const float* gain,
                                      float* dx, Extent extent, cudaStream_t stream) {
  if (extent.size() == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(input_gradient_rows, static_cast<unsigned>(extent.rows), (kThreads), 0, stream)
  (dy, normalised, scale, gain, dx, extent.columns);
  return cudaGetLastError();
}

}  // namespace flopcast::realrun::cuda
