#pragma once

#include <functional>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// The regime into which a pipeline that never flushes settles.
struct SteadyState {
  Ticks window_ticks = 0;       ///< how much the makespan grows by `window_microbatches` more microbatches
  int window_microbatches = 0;  ///< whole rounds of the critical cycle
  bool periodic = false;        ///< settled: the period is exact
  double fill_ticks = 0.0;      ///< makespan less microbatches * period: filling and draining, paid once
  double idle_fraction = 0.0;   ///< of the devices within the window, whatever they wait for

  double period_ticks() const { return static_cast<double>(window_ticks) / static_cast<double>(window_microbatches); }
};

/// Simulates growing numbers of microbatches until two windows in a row take the same time, that which critical_cycle()
/// predicts. A window is at least 4 microbatches a rank, in whole rounds of that cycle; it starts 1, 2, 4 … up to 64
/// windows into the run, because uneven stages settle slowly. Beyond that the last window's mean is reported with
/// `periodic` unset. For a schedule without such a cycle (overlapped pairs) two equal windows must do.
SteadyState steady_state(const std::function<Program(int microbatches)>& generate, const StepTimes& times);

}  // namespace flopcast
