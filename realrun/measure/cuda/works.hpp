#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "calibrate/device/measurement.hpp"
#include "realrun/measure/cuda/rotation.hpp"

namespace flopcast::realrun::cuda {

/// Queues one repetition on the lane's stream; the number chooses its buffers, which it keeps alive.
using QueueOnce = std::function<void(int round)>;

/// The kernel of a sample that is no message, and without what runs beside it; its buffers are filled with random
/// numbers. Throws EnvironmentError where the lane is too small or CUDA refuses.
QueueOnce make_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes);

}  // namespace flopcast::realrun::cuda
