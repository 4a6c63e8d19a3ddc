#include "sim/metrics/steady_state.hpp"

#include "model/error/error.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/critical_cycle.hpp"

namespace flopcast {

namespace {

constexpr int kWindowPerRank = 4;
constexpr int kLongestStartPerRank = 256;

struct Horizon {
  Ticks makespan = 0;
  double busy = 0.0;
};

Horizon simulate_horizon(const Program& program, const StepTimes& times) {
  const LoweredStep step = lower(program, times);
  const EngineResult result = run(step.graph);
  FLOPCAST_CHECK(!result.deadlocked());
  Horizon horizon;
  horizon.makespan = result.makespan;
  for (TaskId task = 0; task < step.graph.task_count(); ++task) {
    if (is_action(step.labels[task].kind)) horizon.busy += static_cast<double>(result.end[task] - result.start[task]);
  }
  return horizon;
}

}  // namespace

SteadyState steady_state(const std::function<Program(int microbatches)>& generate, const StepTimes& times) {
  SteadyState steady;
  const Program shape = generate(1);
  const int ranks = shape.rank_count();
  const int turn = microbatches_per_turn(shape);
  const int window = kWindowPerRank * ranks * turn;
  steady.window_microbatches = window;
  for (int start = window; start <= kLongestStartPerRank * ranks * turn; start *= 2) {
    const Horizon first = simulate_horizon(generate(start), times);
    const Horizon second = simulate_horizon(generate(start + window), times);
    const Horizon third = simulate_horizon(generate(start + 2 * window), times);
    steady.window_ticks = third.makespan - second.makespan;
    steady.periodic = second.makespan - first.makespan == steady.window_ticks;
    steady.fill_ticks = static_cast<double>(third.makespan) - (start + 2 * window) * steady.period_ticks();
    const double device_ticks = static_cast<double>(steady.window_ticks) * ranks;
    steady.idle_fraction = device_ticks > 0.0 ? 1.0 - (third.busy - second.busy) / device_ticks : 0.0;
    if (steady.periodic) return steady;
  }
  return steady;
}

}  // namespace flopcast
