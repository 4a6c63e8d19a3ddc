#pragma once

#include <cstddef>
#include <vector>

#include "sim/lower/step_times.hpp"

namespace flopcast {

/// `to` starts at least `time` after `from`, `advance` microbatches (or rounds of whatever repeats) later.
struct TimedArc {
  std::size_t from = 0;
  std::size_t to = 0;
  Ticks time = 0;
  int advance = 0;

  friend bool operator==(const TimedArc& a, const TimedArc& b) {
    return a.from == b.from && a.to == b.to && a.time == b.time && a.advance == b.advance;
  }
};

/// The arcs, in order, of a cycle with the largest sum of times over sum of advances; empty when there is no cycle.
/// Every cycle must advance: no sum of advances may be 0 or less, or its actions would wait for each other forever.
///
/// Howard's algorithm in floating point finds a candidate; it may stop early where several cycles interlock. Exact
/// integer arithmetic then looks for a better cycle (Bellman-Ford with time * A - advance * T, where T / A is the
/// candidate) until there is none. Products beyond 64 bits leave the candidate unproven.
std::vector<TimedArc> maximum_ratio_cycle(const std::vector<TimedArc>& arcs, std::size_t nodes);

}  // namespace flopcast
