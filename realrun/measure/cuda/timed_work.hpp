#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "realrun/measure/cuda/works.hpp"
#include "realrun/measure/gpu/measured_gpu.hpp"

namespace flopcast::realrun::cuda {

/// An event with a time.
class TimedEvent {
 public:
  TimedEvent();
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  TimedEvent(TimedEvent&&) = delete;
  TimedEvent& operator=(TimedEvent&&) = delete;
  ~TimedEvent();

  void record(cudaStream_t stream);
  bool reached() const;
  void hold_up(cudaStream_t stream) const;
  /// Both have been reached.
  double seconds_until(const TimedEvent& later) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// How long a stream is held while the host queues: longer once the host was not through in time.
class Hold {
 public:
  /// Queues a kernel that keeps the stream busy without using the GPU.
  void begin(cudaStream_t stream) const;
  /// Whether there is any sense in trying again with twice the time.
  bool lengthen();

 private:
  std::int64_t nanoseconds_ = 200'000;
};

/// Seconds after which what is waited for counts as stuck.
constexpr double kPatience = 60.0;

/// A kernel or message alone on its stream, or beside another one that begins before it.
class TimedWork : public QueuedWork {
 public:
  explicit TimedWork(QueuedWorkload work, QueuedWorkload neighbour = {}, double patience_s = kPatience)
      : work_(std::move(work)), neighbour_(std::move(neighbour)), patience_s_(patience_s) {}

  QueuedTime run(int times, int neighbours) override;

 private:
  QueuedTime attempt(int times, int neighbours);
  void begin_neighbours(int neighbours);
  void await(const TimedEvent& event) const;

  QueuedWorkload work_;
  QueuedWorkload neighbour_;
  double patience_s_;
  TimedEvent start_;
  TimedEvent end_;
  TimedEvent released_;  // of the hold, where there are neighbours
  TimedEvent neighbour_end_;
  Hold hold_;
  int round_ = 0;
};

}  // namespace flopcast::realrun::cuda
