#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/device/measurement.hpp"
#include "realrun/compute/cuda/matrix_products.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/measure/measure_gpu.hpp"
#include "realrun/transport/nccl/nccl_api.hpp"

namespace flopcast::realrun::cuda {

/// A region of GPU memory, and the stream whose work uses it.
struct Lane {
  cudaStream_t stream = nullptr;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  MatrixProducts* products = nullptr;
};

/// The buffers of a work, repeated until they take twice the size of the GPU's cache: each repetition uses the next
/// copy, none of which is in the cache.
class Rotation {
 public:
  /// Lays out parts of these sizes for each repetition, and fills them with random numbers on the lane's stream. Throws
  /// EnvironmentError if the lane is too small.
  Rotation(const Lane& lane, std::size_t cache_bytes, const std::vector<std::size_t>& parts,
           Factors factors = Factors::kFloat32, bool positive = false);

  /// The parts of one repetition, in the order given to the constructor.
  template <std::size_t kParts>
  std::array<float*, kParts> of(int round) const {
    FLOPCAST_CHECK(kParts == starts_.size());
    std::array<float*, kParts> parts{};
    std::byte* const slot = memory_ + static_cast<std::size_t>(round) % slots_ * stride_;
    for (std::size_t part = 0; part < kParts; ++part) parts[part] = reinterpret_cast<float*>(slot + starts_[part]);
    return parts;
  }
  std::size_t slots() const { return slots_; }

 private:
  std::byte* memory_;
  std::vector<std::size_t> starts_;
  std::size_t stride_ = 0;
  std::size_t slots_ = 0;
};

/// Queues one repetition on the lane's stream; `round` selects its buffers, which the function keeps alive.
using QueueOnce = std::function<void(int round)>;

/// Work queued on a stream, with a check to run while waiting for it.
struct QueuedWorkload {
  cudaStream_t stream = nullptr;
  QueueOnce queue;
  /// Throws EnvironmentError if the work has failed; `late`: the wait has timed out. Empty: there is no check.
  std::function<void(bool late)> watch;
  double share = 1.0;  ///< fraction of a repetition's time that counts: half of a round trip
};

/// The kernel of a sample other than a message, without any concurrent work; its buffers are filled with random
/// numbers. Throws EnvironmentError if the lane is too small or CUDA refuses.
QueueOnce make_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes);

/// A CUDA event that records its time.
class TimedEvent {
 public:
  TimedEvent();
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  ~TimedEvent();

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  bool reached() const { return has_reached(event_); }
  void hold_up(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  /// Both must have been reached.
  double seconds_until(const TimedEvent& later) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// How long a stream is held while the host queues: doubled if the host did not finish in time.
class Hold {
 public:
  /// Queues a kernel that keeps the stream busy without using the GPU.
  void begin(cudaStream_t stream) const { check(spin(nanoseconds_, stream), "spin"); }
  /// Doubles the time; returns false once it has reached its limit.
  bool lengthen();

 private:
  std::int64_t nanoseconds_ = 200'000;
};

/// Seconds after which a wait counts as stuck: shorter than the watchdog over calls, so that a sample that never ends
/// is refused and the next one is measured.
constexpr double kPatience = 8.0;

/// A kernel or message alone on its stream, or overlapped with a neighbour that begins before it.
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
  TimedEvent released_;  // end of the hold, if there are neighbours
  TimedEvent neighbour_end_;
  Hold hold_;
  int round_ = 0;
};

/// Messages between the GPUs of this node over NCCL, all driven by one thread. The other GPUs' ends wait on their GPUs
/// until GPU 0 reaches its own: a message begins when GPU 0 is ready for it. Messages are timed on GPU 0's stream. The
/// first failure ends all of them: every communicator is aborted, and later requests are refused with the reason. GPU 0
/// is current after every call, even one that throws.
class NcclMessages {
 public:
  explicit NcclMessages(std::unique_ptr<NcclApi> nccl) : nccl_(std::move(nccl)) {}
  NcclMessages(const NcclMessages&) = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;
  ~NcclMessages();

  std::string version() const { return nccl_->version(); }
  /// A message of the first `key.ranks` GPUs, on at most `key.channels` channels if the key specifies them. Bytes as
  /// SampleKind counts them, rounded down to whole elements. Makes the group on first use; a group that could not be
  /// made is not tried again.
  QueuedWorkload make(const SampleKey& key);

 private:
  class Ends;
  struct Member {
    int gpu = 0;
    cudaStream_t stream = nullptr;
    NcclApi::Communicator communicator = nullptr;
  };

  using GroupName = std::pair<int, int>;  // ranks and channels

  const std::vector<Member>& group_of(int ranks, int channels);
  void join(std::vector<Member>& members, int channels);
  void watch(const std::vector<Member>& members, bool late);
  void throw_if_failed() const;
  void give_up(const std::string& reason);
  void abort(const std::vector<Member*>& members);

  std::unique_ptr<NcclApi> nccl_;
  std::map<GroupName, std::vector<Member>> groups_;
  std::map<GroupName, std::string> not_made_;  // with the reason
  std::string failure_;
};

}  // namespace flopcast::realrun::cuda
