#include "realrun/compute/cpu/host_device.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "model/error/error.hpp"
#include "realrun/compute/host_clock.hpp"

namespace flopcast::realrun {

Ticks host_clock() {
  constexpr Ticks kPicosecondsPerNanosecond = 1000;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  return nanoseconds % kHostClockPeriodNs * kPicosecondsPerNanosecond;
}

float* host_floats(const Buffer& buffer) {
  return reinterpret_cast<float*>(buffer.address());
}

namespace {

std::size_t float_count(const Buffer& buffer) {
  return buffer.bytes() / sizeof(float);
}

struct Slice {
  const float* weights;
  const float* gradients;
  float* updated;
  std::size_t count;
};

void sgd(const Optimizer& rule, const Slice& slice, float* velocity) {
  for (std::size_t index = 0; index < slice.count; ++index) {
    velocity[index] = rule.momentum * velocity[index] + slice.gradients[index];
    slice.updated[index] = slice.weights[index] - rule.rate * velocity[index];
  }
}

void adam(const Optimizer& rule, int step, const Slice& slice, float* mean, float* square) {
  const auto exponent = static_cast<float>(step);
  const float mean_correction = 1.0F - std::pow(rule.beta1, exponent);
  const float square_correction = 1.0F - std::pow(rule.beta2, exponent);
  for (std::size_t index = 0; index < slice.count; ++index) {
    const float gradient = slice.gradients[index];
    mean[index] = rule.beta1 * mean[index] + (1.0F - rule.beta1) * gradient;
    square[index] = rule.beta2 * square[index] + (1.0F - rule.beta2) * gradient * gradient;
    const float deviation = std::sqrt(square[index] / square_correction) + rule.epsilon;
    slice.updated[index] = slice.weights[index] - rule.rate * (mean[index] / mean_correction) / deviation;
  }
}

}  // namespace

Buffer HostDevice::allocate(std::size_t bytes) {
  return allocate_host(bytes);
}

void HostDevice::zero(const Buffer& buffer) {
  if (!buffer.empty()) std::memset(buffer.address(), 0, buffer.bytes());
}

void HostDevice::copy(const Buffer& from, const Buffer& to) {
  FLOPCAST_CHECK(from.bytes() == to.bytes());
  if (!from.empty()) std::memcpy(to.address(), from.address(), from.bytes());
}

void HostDevice::add(const Buffer& from, const Buffer& to) {
  FLOPCAST_CHECK(from.bytes() == to.bytes());
  const float* source = host_floats(from);
  float* target = host_floats(to);
  for (std::size_t index = 0; index < float_count(from); ++index) target[index] += source[index];
}

void HostDevice::optimize(const Optimizer& rule, int step, const Buffer& weights, const Buffer& gradients,
                          const std::vector<Buffer>& states, const Buffer& updated) {
  FLOPCAST_CHECK(static_cast<int>(states.size()) == rule.states() && weights.bytes() == gradients.bytes());
  const Slice slice{host_floats(weights), host_floats(gradients), host_floats(updated), float_count(weights)};
  if (rule.kind == OptimizerKind::kSgd) {
    sgd(rule, slice, host_floats(states[0]));
  } else {
    adam(rule, step, slice, host_floats(states[0]), host_floats(states[1]));
  }
}

void HostDevice::upload(const std::byte* from, const Buffer& to) {
  copy_bytes(to.address(), from, to.bytes());
}

void HostDevice::download(const Buffer& from, std::byte* to) {
  copy_bytes(to, from.address(), from.bytes());
}

Mark HostDevice::mark() {
  return {host_clock()};
}

Ticks HostDevice::time_of(const Mark& mark) {
  return mark.ticks;
}

}  // namespace flopcast::realrun
