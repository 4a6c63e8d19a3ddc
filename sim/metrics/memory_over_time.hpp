#pragma once

#include <cstdint>
#include <vector>

#include "sim/timeline.hpp"

namespace flopcast {

/// The memory of a rank from `time` on, until the next point.
struct MemoryPoint {
  Ticks time = 0;
  double bytes = 0.0;
};

struct RankMemory {
  std::vector<MemoryPoint> points;  ///< in order of time, one per change; the first is the base at 0
  double peak_bytes = 0.0;
  std::vector<std::int64_t> held_at_peak;  ///< activations, by stage: microbatches, or slices of them
};

/// Bytes that an action on a stage's microbatch, or slice of it, leaves behind.
struct HeldBytes {
  double from_forward = 0.0;          ///< from the start of F to the end of B or I
  double after_input_gradient = 0.0;  ///< from the end of I to the end of W
};

/// Bytes a rank holds over time: `base_bytes` (weights, gradients, optimizer) and, of each microbatch, the activations
/// of each stage from the start of its F to the end of its B or W. `held_bytes` is by stage. What ends at an instant is
/// freed before what the rank starts next is allocated. Left out: fragmentation, and buffers that live inside one
/// action.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<double>& held_bytes);
/// The same where the input gradient frees some of it, or leaves more behind.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<HeldBytes>& held_bytes);

}  // namespace flopcast
