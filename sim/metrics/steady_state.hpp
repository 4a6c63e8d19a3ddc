#pragma once

#include <functional>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// The regime into which a pipeline that never flushes settles.
struct SteadyState {
  Ticks window_ticks = 0;       ///< how much the makespan grows by `window_microbatches` more microbatches
  int window_microbatches = 0;  ///< a multiple of the pipeline ranks
  bool periodic = false;        ///< two windows in a row took the same time, so the period is exact
  double fill_ticks = 0.0;      ///< makespan less microbatches * period: filling and draining, paid once
  double idle_fraction = 0.0;   ///< of the devices within the window, whatever they wait for

  double period_ticks() const { return static_cast<double>(window_ticks) / static_cast<double>(window_microbatches); }
};

/// Simulates growing numbers of microbatches until two windows in a row take the same time. The rhythm of a pipeline
/// with exposed latency repeats over several microbatches, at most once per rank in 1F1B, so a window is 4 ranks long
/// (times the turns of replicated stages); it starts 4, 8, 16 … up to 256 ranks into the run, because uneven stages
/// settle slowly. Beyond that the last window's mean is reported with `periodic` unset.
SteadyState steady_state(const std::function<Program(int microbatches)>& generate, const StepTimes& times);

}  // namespace flopcast
