#include "sim/metrics/steady_state.hpp"

#include <numeric>
#include <optional>

#include "model/error/error.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/critical_cycle.hpp"

namespace flopcast {

namespace {

constexpr int kWindowPerRank = 4;

// At least 4 microbatches a rank, in whole turns of the replicas and whole rounds of the cycle that sets the period.
int window_of(const Program& shape, const std::optional<CriticalCycle>& cycle) {
  const int turn = std::lcm(microbatches_per_turn(shape), cycle ? cycle->microbatches : 1);
  FLOPCAST_CHECK(turn > 0);
  const int least = kWindowPerRank * shape.rank_count();
  return (least + turn - 1) / turn * turn;
}
constexpr int kLongestStart = 256;  // of ranks, where a window is 4 ranks long

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
  const std::optional<CriticalCycle> cycle = critical_cycle(generate, times);
  const int window = window_of(shape, cycle);
  steady.window_microbatches = window;
  for (int start = window; start <= kLongestStart / kWindowPerRank * window; start *= 2) {
    const Horizon first = simulate_horizon(generate(start), times);
    const Horizon second = simulate_horizon(generate(start + window), times);
    const Horizon third = simulate_horizon(generate(start + 2 * window), times);
    steady.window_ticks = third.makespan - second.makespan;
    steady.periodic = second.makespan - first.makespan == steady.window_ticks;
    // Equal windows may yet be one phase of a longer rhythm; the cycle knows the mean.
    if (cycle) steady.periodic = steady.periodic && steady.window_ticks == window / cycle->microbatches * cycle->time;
    steady.fill_ticks = static_cast<double>(third.makespan) - (start + 2 * window) * steady.period_ticks();
    const double device_ticks = static_cast<double>(steady.window_ticks) * ranks;
    steady.idle_fraction = device_ticks > 0.0 ? 1.0 - (third.busy - second.busy) / device_ticks : 0.0;
    if (steady.periodic) return steady;
  }
  return steady;
}

}  // namespace flopcast
