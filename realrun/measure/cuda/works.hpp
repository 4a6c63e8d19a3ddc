#pragma once

#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "realrun/compute/cuda/matrix_products.hpp"
#include "realrun/measure/measure_gpu.hpp"

namespace flopcast::realrun::cuda {

/// A part of the GPU's memory, and the stream whose works lie in it.
struct Lane {
  cudaStream_t stream = nullptr;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  MatrixProducts* products = nullptr;
};

/// The buffers of a work, as many times one behind the other as are twice the GPU's cache: a repetition takes the next
/// ones, and finds nothing of them in the cache.
class Rotation {
 public:
  Rotation(const Lane& lane, std::size_t cache_bytes) : lane_(lane), cache_bytes_(cache_bytes) {}

  /// Asks for a buffer of each repetition; returns where it begins.
  std::size_t part(std::size_t bytes);
  /// When all parts are known: fills them, queued on the lane's stream. Throws EnvironmentError when the lane is too
  /// small.
  void fill(Factors factors, bool positive);

  template <class Value>
  Value* at(std::size_t part, int round) const {
    return reinterpret_cast<Value*>(address(part, round));
  }
  std::size_t slots() const { return slots_; }

 private:
  std::byte* address(std::size_t part, int round) const;

  Lane lane_;
  std::size_t cache_bytes_;
  std::size_t stride_ = 0;
  std::size_t slots_ = 0;
};

/// Queues one repetition on the lane's stream; the number chooses its buffers, which it keeps alive.
using QueueOnce = std::function<void(int round)>;

/// What is queued on a stream, and looked after while it is waited for.
struct QueuedWorkload {
  cudaStream_t stream = nullptr;
  QueueOnce queue;
  /// Throws EnvironmentError when it has failed; `late`: it was waited for too long. Empty: nothing can be said.
  std::function<void(bool late)> watch;
  double share = 1.0;  ///< of the time of a repetition, that counts: half of a round trip
};

/// The kernel of a sample that is no message, and without what runs beside it; its buffers are filled with random
/// numbers. Throws EnvironmentError where the lane is too small or CUDA refuses.
QueueOnce make_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes);

/// An event with a time.
class TimedEvent {
 public:
  TimedEvent();
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
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

/// Seconds after which what is waited for counts as stuck: less than the watchdog over calls has, so that a sample
/// which does not end is refused and the next one is taken.
constexpr double kPatience = 8.0;

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
