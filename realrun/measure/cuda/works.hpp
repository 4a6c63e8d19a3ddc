#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "calibrate/device/measurement.hpp"
#include "realrun/measure/cuda/rotation.hpp"

namespace flopcast::realrun::cuda {

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

}  // namespace flopcast::realrun::cuda
