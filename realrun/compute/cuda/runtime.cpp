#include "realrun/compute/cuda/runtime.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/device/device.hpp"

namespace flopcast::realrun::cuda {

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  throw EnvironmentError(
      fmt::format("CUDA: {} failed: {} ({})", call, cudaGetErrorString(result), cudaGetErrorName(result)));
}

bool has_reached(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(result, "cudaEventQuery");
  return true;
}

namespace {

constexpr double kTicksPerMillisecond = 1e9;
constexpr float kFarMilliseconds = 500.0F;  // where 24 bits resolve 30 ns

Ticks between(cudaEvent_t from, cudaEvent_t to, float& milliseconds) {
  check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
  return std::llround(static_cast<double>(milliseconds) * kTicksPerMillisecond);
}

}  // namespace

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

DeviceClock::DeviceClock() : DeviceClock(new_stream()) {}

DeviceClock::DeviceClock(cudaStream_t stream) : stream_(stream) {
  check(cudaEventCreate(&anchor_), "cudaEventCreate");
  check(cudaEventCreate(&next_), "cudaEventCreate");
  compare_with_host();
}

DeviceClock::~DeviceClock() {
  // An error here has surfaced before.
  cudaEventDestroy(anchor_);
  cudaEventDestroy(next_);
  cudaStreamDestroy(stream_);
}

void DeviceClock::compare_with_host() {
  constexpr int kTries = 20;
  Ticks shortest = std::numeric_limits<Ticks>::max();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Ticks before = host_clock();
    check(cudaEventRecord(next_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(next_), "cudaEventSynchronize");
    const Ticks after = host_clock();
    if (after - before >= shortest) continue;
    shortest = after - before;
    anchor_time_ = before + shortest / 2 + offset_;
    std::swap(anchor_, next_);
  }
}

void DeviceClock::synchronise(Ticks offset) {
  const std::lock_guard lock(mutex_);
  offset_ = offset;
  compare_with_host();
}

// Uses the device's own clock, so that earlier and later times are consistent.
void DeviceClock::move_anchor() {
  check(cudaEventRecord(next_, stream_), "cudaEventRecord");
  check(cudaEventSynchronize(next_), "cudaEventSynchronize");
  float distance = 0.0F;
  anchor_time_ += between(anchor_, next_, distance);
  std::swap(anchor_, next_);
}

Ticks DeviceClock::time_of(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  float distance = 0.0F;
  const Ticks time = anchor_time_ + between(anchor_, event, distance);
  if (distance > kFarMilliseconds) move_anchor();
  return time;
}

}  // namespace flopcast::realrun::cuda
