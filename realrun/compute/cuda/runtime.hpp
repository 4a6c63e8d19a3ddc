#pragma once

#include <cuda_runtime_api.h>
#include <mutex>
#include <string>
#include <vector>

#include "realrun/compute/cuda/launch.hpp"
#include "sim/program/request.hpp"

namespace flopcast::realrun::cuda {

/// On the current GPU, beside all others.
cudaStream_t new_stream();

/// Whether the device is past the event. Not being there yet is no error, nor is it left for the next launch to report.
bool has_reached(cudaEvent_t event);

/// Tells when events of one GPU happened, in ticks of host_clock(). CUDA measures between two events, to half a
/// microsecond and with 24 bits: times are taken from an anchor, an event whose time is known, which moves on with the
/// events so that no distance is long. Any thread may call.
class DeviceClock {
 public:
  /// Compares the clocks: waits for an event of an idle stream several times and believes the shortest wait.
  DeviceClock();
  /// By a stream given, where events of others cannot be timed against those of a new one. Destroys it in the end.
  explicit DeviceClock(cudaStream_t stream);
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock();

  /// Of an event that has been reached.
  Ticks time_of(cudaEvent_t event);
  /// Compares the clocks anew. For one rank a process: the others' clocks drift apart. From now on times are those of
  /// the host's clock plus `offset`.
  void synchronise(Ticks offset);

 private:
  void compare_with_host();
  void move_anchor();

  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t anchor_ = nullptr;
  cudaEvent_t next_ = nullptr;
  Ticks anchor_time_ = 0;
  Ticks offset_ = 0;
};

/// Disjoint parts of a GPU's multiprocessors, each with streams whose kernels stay inside (CUDA 12.4's green contexts).
/// Memory bandwidth, caches and power are still shared. The parts live until the program ends.
struct GreenPart {
  int multiprocessors = 0;
  std::vector<cudaStream_t> streams;
  cudaStream_t idle = nullptr;  ///< one more, for a clock
};

/// What became of the wish for parts.
struct GreenParts {
  std::vector<GreenPart> parts;  ///< empty when it was refused
  std::string refusal;           ///< in that case why
  bool timed_together = false;   ///< events of different parts, and of streams outside, can be timed against each other
};

/// `count` equal parts of the current GPU with `streams` streams each, as large as its granularity allows. They are
/// tried out: kernels run, events of one part are waited for by another and timed.
GreenParts split_gpu(int count, int streams);

}  // namespace flopcast::realrun::cuda
