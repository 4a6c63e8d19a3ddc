#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// When a program of one chain and without overlapped pairs ends, transfers being latency only.
struct OrderTimes {
  Ticks makespan = 0;
  Ticks span = 0;  ///< the longest time from a rank's first start to its last end
};

/// What makes one order better than another: a shorter makespan, among equals a shorter span; or the other way round.
struct OrderGoal {
  bool span_first = false;
  /// An order that takes longer is worse than any that does not, whatever its span. Absent: no such bound.
  std::optional<Ticks> most_makespan;

  bool prefers(const OrderTimes& a, const OrderTimes& b) const {
    const auto key = [this](const OrderTimes& times) {
      const Ticks excess = most_makespan ? std::max<Ticks>(0, times.makespan - *most_makespan) : 0;
      return std::tuple(excess, span_first ? times.span : times.makespan, span_first ? times.makespan : times.span);
    };
    return key(a) < key(b);
  }
};

/// Expects a program that find_fault accepts. A search times thousands of orders: this is faster than the engine, which
/// knows streams, flushes and pairs.
OrderTimes time_order(const Program& program, int microbatches, const StepTimes& times);

}  // namespace flopcast
