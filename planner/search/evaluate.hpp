#pragma once

#include "planner/bounds/bounds.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// What ranking a layout needs of its forecast.
struct EvaluatedLayout {
  bool fits = false;
  double time_s = 0.0;  ///< of one step, as forecast() has it; 0 when it does not fit
  MemoryBound memory;   ///< exact
};

/// forecast() without timeline and metrics: the program is generated, its memory counted and, where that fits, the step
/// simulated.
EvaluatedLayout evaluate_layout(const Job& job);

}  // namespace flopcast
