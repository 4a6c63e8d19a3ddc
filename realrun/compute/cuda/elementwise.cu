#include <cuda_bf16.h>

#include "realrun/compute/cuda/device_code.cuh"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

// x times the logistic function of kSlope · (x + kCubic x³), as Gelu of network/layer_norm.hpp has it.
class GeluPoint {
 public:
  __device__ explicit GeluPoint(float x) : x_(x) {
    constexpr float kFar = 60.0F;  // the shares are 0 and 1 there, and the exponential is finite
    const float power = expf(fminf(kFar, fmaxf(-kFar, -kSlope * (x + kCubic * x * x * x))));
    share_ = 1.0F / (1.0F + power);
    rest_ = power * share_;
  }
  __device__ float value() const { return x_ * share_; }
  __device__ float derivative() const {
    return share_ * (1.0F + x_ * rest_ * kSlope * (1.0F + 3.0F * kCubic * x_ * x_));
  }

 private:
  static constexpr float kCubic = 0.044715F;
  static constexpr float kSlope = 1.59576912160573071176F;  // 2·√(2/π)

  float x_;
  float share_;
  float rest_;  // 1 - share
};

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
  return launch(count, stream, [=] __device__(std::size_t index) { y[index] = GeluPoint(x[index]).value(); });
}

cudaError_t gelu_gradient(const float* dy, const float* x, float* dx, std::size_t count, cudaStream_t stream) {
  return launch(count, stream,
                [=] __device__(std::size_t index) { dx[index] = dy[index] * GeluPoint(x[index]).derivative(); });
}

cudaError_t to_bfloat16(const float* x, void* y, std::size_t count, cudaStream_t stream) {
  auto* rounded = static_cast<__nv_bfloat16*>(y);
  return launch(count, stream, [=] __device__(std::size_t index) { rounded[index] = __float2bfloat16_rn(x[index]); });
}

}  // namespace flopcast::realrun::cuda
