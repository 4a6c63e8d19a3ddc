#pragma once

#include <tuple>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// When a program of one chain and without overlapped pairs ends, transfers being latency only.
struct OrderTimes {
  Ticks makespan = 0;
  Ticks span = 0;  ///< the longest time from a rank's first start to its last end

  friend bool operator<(const OrderTimes& a, const OrderTimes& b) {
    return std::tie(a.makespan, a.span) < std::tie(b.makespan, b.span);
  }
};

/// Expects a program that find_fault accepts. A search times thousands of orders: this is faster than the engine, which
/// knows streams, flushes and pairs.
OrderTimes time_order(const Program& program, int microbatches, const StepTimes& times);

}  // namespace flopcast
