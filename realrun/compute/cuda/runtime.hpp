#pragma once

#include <cuda_runtime_api.h>
#include <mutex>
#include <string>
#include <vector>

#include "realrun/compute/cuda/launch.hpp"
#include "sim/program/request.hpp"

namespace flopcast::realrun::cuda {

/// Makes a stream on the current GPU that does not synchronise with the default stream.
cudaStream_t new_stream();

/// True once the device has passed the event. A pending event is not an error and does not surface in the next launch.
bool has_reached(cudaEvent_t event);

/// Converts events of one GPU to ticks of host_clock(). CUDA measures the time between two events with a resolution of
/// half a microsecond and 24 bits. Times are therefore taken from an anchor, an event of known time, which advances
/// with the events so that no interval is long. Thread-safe.
class DeviceClock {
 public:
  /// Compares the clocks: waits several times for an event on an idle stream and trusts the shortest wait.
  DeviceClock();
  /// Uses the given stream, for events that cannot be timed against those of a new one. Takes ownership of it.
  explicit DeviceClock(cudaStream_t stream);
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock();

  /// Time of an event that has been reached.
  Ticks time_of(cudaEvent_t event);
  /// Compares the clocks again, because those of different processes drift apart; for one rank per process. From then
  /// on times are the host's plus `offset`.
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

/// Disjoint parts of a GPU's multiprocessors, each with streams whose kernels stay inside it (green contexts of CUDA
/// 12.4). Memory bandwidth, caches and power are shared. The parts live until the program ends.
struct GreenPart {
  int multiprocessors = 0;
  std::vector<cudaStream_t> streams;
  cudaStream_t idle = nullptr;  ///< an additional one, for a clock
};

/// Result of splitting a GPU.
struct GreenParts {
  std::vector<GreenPart> parts;  ///< empty if the driver refused
  std::string refusal;           ///< the reason in that case
  bool timed_together =
      false;  ///< events of different parts, and of streams outside them, can be timed against each other
};

/// `count` equal parts of the current GPU with `streams` streams each, as large as its granularity allows. Verifies
/// them: runs kernels, waits for events of one part in another, and times them.
GreenParts split_gpu(int count, int streams);

}  // namespace flopcast::realrun::cuda
