#include <cmath>

#include "realrun/compute/cuda/device_code.cuh"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

__global__ void sgd_kernel(float rate, float momentum, Update update, float* velocity) {
  for (std::size_t index = first_index(); index < update.count; index += index_stride()) {
    const float speed = momentum * velocity[index] + update.gradients[index];
    velocity[index] = speed;
    update.updated[index] = update.weights[index] - rate * speed;
  }
}

struct AdamRates {
  float rate;
  float beta1;
  float beta2;
  float epsilon;
  float mean_correction;
  float square_correction;
};

__global__ void adam_kernel(AdamRates rates, Update update, float* mean, float* square) {
  for (std::size_t index = first_index(); index < update.count; index += index_stride()) {
    const float gradient = update.gradients[index];
    const float m = rates.beta1 * mean[index] + (1.0F - rates.beta1) * gradient;
    const float v = rates.beta2 * square[index] + (1.0F - rates.beta2) * gradient * gradient;
    mean[index] = m;
    square[index] = v;
    const float deviation = sqrtf(v / rates.square_correction) + rates.epsilon;
    update.updated[index] = update.weights[index] - rates.rate * (m / rates.mean_correction) / deviation;
  }
}

struct Inputs {
  const float* addresses[kMostInputs];
  int count;
};

template <class Operation>
__global__ void reduce_kernel(Inputs inputs, float* output, std::size_t count, Operation operation) {
  for (std::size_t index = first_index(); index < count; index += index_stride()) {
    float value = inputs.addresses[0][index];
    for (int input = 1; input < inputs.count; ++input) value = operation(value, inputs.addresses[input][index]);
    output[index] = value;
  }
}

}  // namespace

cudaError_t sgd(const Optimizer& rule, const Update& update, float* velocity, cudaStream_t stream) {
  if (update.count == 0) return cudaSuccess;
  FLOPCAST_LAUNCH(sgd_kernel, blocks_for(update.count), (kThreads), 0, stream)
  (rule.rate, rule.momentum, update, velocity);
  return cudaGetLastError();
}

cudaError_t adam(const Optimizer& rule, int step, const Update& update, float* mean, float* square,
                 cudaStream_t stream) {
  if (update.count == 0) return cudaSuccess;
  const auto exponent = static_cast<float>(step);
  const AdamRates rates{rule.rate,
                        rule.beta1,
                        rule.beta2,
                        rule.epsilon,
                        1.0F - std::pow(rule.beta1, exponent),
                        1.0F - std::pow(rule.beta2, exponent)};
  FLOPCAST_LAUNCH(adam_kernel, blocks_for(update.count), (kThreads), 0, stream)(rates, update, mean, square);
  return cudaGetLastError();
}

cudaError_t reduce(const std::vector<const float*>& inputs, bool maximum, float* output, std::size_t count,
                   cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (inputs.empty() || inputs.size() > kMostInputs) return cudaErrorInvalidValue;
  Inputs list{};
  list.count = static_cast<int>(inputs.size());
  for (std::size_t input = 0; input < inputs.size(); ++input) list.addresses[input] = inputs[input];
  if (maximum) {
    FLOPCAST_LAUNCH(reduce_kernel, blocks_for(count), (kThreads), 0, stream)(list, output, count, Maximum{});
  } else {
    FLOPCAST_LAUNCH(reduce_kernel, blocks_for(count), (kThreads), 0, stream)(list, output, count, Sum{});
  }
  return cudaGetLastError();
}

}  // namespace flopcast::realrun::cuda
