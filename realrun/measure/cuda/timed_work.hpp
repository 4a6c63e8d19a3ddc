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
  void wait() const;
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

/// A kernel alone on its stream, or beside another one that begins before it.
class TimedWork : public QueuedWork {
 public:
  TimedWork(cudaStream_t stream, QueueOnce work) : stream_(stream), work_(std::move(work)) {}
  TimedWork(cudaStream_t stream, QueueOnce work, cudaStream_t other, QueueOnce neighbour)
      : stream_(stream), work_(std::move(work)), other_(other), neighbour_(std::move(neighbour)) {}

  QueuedTime run(int times, int neighbours) override;

 private:
  struct Attempt {
    QueuedTime time;
    bool host_was_ahead = true;
  };
  Attempt attempt(int times, int neighbours);
  void begin_neighbours(int neighbours);

  cudaStream_t stream_;
  QueueOnce work_;
  cudaStream_t other_ = nullptr;
  QueueOnce neighbour_;
  TimedEvent start_;
  TimedEvent end_;
  TimedEvent released_;  // of the hold, where there are neighbours
  TimedEvent neighbour_end_;
  Hold hold_;
  int round_ = 0;
};

}  // namespace flopcast::realrun::cuda
