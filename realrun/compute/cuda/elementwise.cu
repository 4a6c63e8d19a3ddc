#include <cuda_bf16.h>

#include "realrun/compute/cuda/device_code.cuh"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr float kInverseSqrt2 = 0.70710678118654752440F;
constexpr float kInverseSqrt2Pi = 0.39894228040143267794F;

template <class Function>
__global__ void for_each(std::size_t count, Function function) {
  for (std::size_t index = first_index(); index < count; index += index_stride()) function(index);
}

template <class Function>
cudaError_t launch(std::size_t count, cudaStream_t stream, Function function) {
  if (count == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(for_each, blocks_for(count), (kThreads), 0, stream)(count, function);
  return cudaGetLastError();
}

}  // namespace

cudaError_t add(const float* a, const float* b, float* sum, std::size_t count, cudaStream_t stream) {
  return launch(count, stream, [=] __device__(std::size_t index) { sum[index] = a[index] + b[index]; });
}

cudaError_t add_bias(const float* x, const float* bias, float* y, Extent extent, cudaStream_t stream) {
  const std::size_t columns = extent.columns;
  return launch(extent.size(), stream,
                [=] __device__(std::size_t index) { y[index] = x[index] + bias[index % columns]; });
}

cudaError_t gelu(const float* x, float* y, std::size_t count, cudaStream_t stream) {
  return launch(count, stream, [=] __device__(std::size_t index) {
    const float value = x[index];
    y[index] = value * 0.5F * erfcf(-value * kInverseSqrt2);
  });
}

cudaError_t gelu_gradient(const float* dy, const float* x, float* dx, std::size_t count, cudaStream_t stream) {
  return launch(count, stream, [=] __device__(std::size_t index) {
    const float value = x[index];
    const float distribution = 0.5F * erfcf(-value * kInverseSqrt2);
    const float density = kInverseSqrt2Pi * expf(-value * value * 0.5F);
    dx[index] = dy[index] * (distribution + value * density);
  });
}

cudaError_t to_bfloat16(const float* x, void* y, std::size_t count, cudaStream_t stream) {
  auto* rounded = static_cast<__nv_bfloat16*>(y);
  return launch(count, stream, [=] __device__(std::size_t index) { rounded[index] = __float2bfloat16_rn(x[index]); });
}

}  // namespace flopcast::realrun::cuda
