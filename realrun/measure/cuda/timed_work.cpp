#include "realrun/measure/cuda/timed_work.hpp"

#include "realrun/compute/cuda/check.hpp"
#include "realrun/compute/cuda/launch.hpp"
#include "realrun/measure/clock.hpp"

namespace flopcast::realrun::cuda {

TimedEvent::TimedEvent() {
  check(cudaEventCreate(&event_), "cudaEventCreate");
}

TimedEvent::~TimedEvent() {
  cudaEventDestroy(event_);
}

void TimedEvent::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "cudaEventRecord");
}

bool TimedEvent::reached() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // it would come out of the next launch
    return false;
  }
  check(result, "cudaEventQuery");
  return true;
}

void TimedEvent::wait() const {
  check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

void TimedEvent::hold_up(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

double TimedEvent::seconds_until(const TimedEvent& later) const {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

void Hold::begin(cudaStream_t stream) const {
  check(spin(nanoseconds_, stream), "spin");
}

bool Hold::lengthen() {
  constexpr std::int64_t kLongest = 10'000'000;
  if (nanoseconds_ >= kLongest) return false;
  nanoseconds_ *= 2;
  return true;
}

QueuedTime TimedWork::run(int times, int neighbours) {
  while (true) {
    const Attempt attempted = attempt(times, neighbours);
    if (attempted.host_was_ahead || !hold_.lengthen()) return attempted.time;
  }
}

// The other stream is held, and this one until that hold ends; then the neighbour has a moment to take its place.
void TimedWork::begin_neighbours(int neighbours) {
  constexpr std::int64_t kHeadStart = 30'000;
  hold_.begin(other_);
  released_.record(other_);
  for (int count = 0; count < neighbours; ++count) neighbour_(round_ + count);
  neighbour_end_.record(other_);
  released_.hold_up(stream_);
  check(spin(kHeadStart, stream_), "spin");
}

TimedWork::Attempt TimedWork::attempt(int times, int neighbours) {
  static const Clock clock = machine_clock();
  if (neighbour_) {
    begin_neighbours(neighbours);
  } else {
    hold_.begin(stream_);
  }
  start_.record(stream_);
  Attempt result;
  const bool first = round_ == 0;
  const double begin = clock.wall();
  for (int count = 0; count < times; ++count) work_(round_++);
  result.time.host_s = clock.wall() - begin;
  end_.record(stream_);
  // The first time libraries load and choose kernels, which says nothing about the next.
  result.host_was_ahead = first || !start_.reached();
  end_.wait();
  result.time.device_s = start_.seconds_until(end_);
  if (neighbour_) {
    neighbour_end_.wait();
    result.time.covered = end_.seconds_until(neighbour_end_) > 0.0;
  }
  return result;
}

}  // namespace flopcast::realrun::cuda
