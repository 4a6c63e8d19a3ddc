#include "realrun/measure/cuda/timed_work.hpp"

#include <fmt/format.h>

#include "model/error/error.hpp"
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
  return has_reached(event_);
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
    const QueuedTime time = attempt(times, neighbours);
    if (time.host_ahead || !hold_.lengthen()) return time;
  }
}

// The other stream is held, and this one until that hold ends; then the neighbour has a moment to take its place.
void TimedWork::begin_neighbours(int neighbours) {
  constexpr std::int64_t kHeadStart = 30'000;
  hold_.begin(neighbour_.stream);
  released_.record(neighbour_.stream);
  for (int count = 0; count < neighbours; ++count) neighbour_.queue(round_ + count);
  neighbour_end_.record(neighbour_.stream);
  released_.hold_up(work_.stream);
  check(spin(kHeadStart, work_.stream), "spin");
}

// Not by cudaEventSynchronize, which has no limit: a message whose other end never comes would never end.
void TimedWork::await(const TimedEvent& event) const {
  static const Clock clock = machine_clock();
  constexpr double kBetweenLooks = 1e-2;
  const double begin = clock.wall();
  double next = kBetweenLooks;
  while (!event.reached()) {
    const double waited = clock.wall() - begin;
    const bool late = waited >= patience_s_;
    if (waited < next && !late) continue;
    next = waited + kBetweenLooks;
    for (const QueuedWorkload* watched : {&work_, &neighbour_}) {
      if (watched->watch) watched->watch(late);
    }
    if (late) throw EnvironmentError(fmt::format("the GPU is not through with it after {:.3g} s", patience_s_));
  }
}

QueuedTime TimedWork::attempt(int times, int neighbours) {
  static const Clock clock = machine_clock();
  if (neighbour_.queue) {
    begin_neighbours(neighbours);
  } else {
    hold_.begin(work_.stream);
  }
  start_.record(work_.stream);
  QueuedTime result;
  const bool first = round_ == 0;
  const double begin = clock.wall();
  for (int count = 0; count < times; ++count) work_.queue(round_++);
  result.host_s = clock.wall() - begin;
  end_.record(work_.stream);
  // The first time libraries load and choose kernels, which says nothing about the next.
  result.host_ahead = first || !start_.reached();
  await(end_);
  result.device_s = work_.share * start_.seconds_until(end_);
  if (neighbour_.queue) {
    await(neighbour_end_);
    result.covered = end_.seconds_until(neighbour_end_) > 0.0;
  }
  return result;
}

}  // namespace flopcast::realrun::cuda
