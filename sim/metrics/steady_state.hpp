#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast {

/// Why a pipeline that never flushes is no faster: actions that wait for each other in a circle, round and round.
struct CriticalCycle {
  struct Step {
    int rank = 0;
    Action action;  ///< of the first microbatches for which the cycle holds
  };
  std::vector<Step> steps;  ///< in order of time; after the last comes the first again, `microbatches` later
  Ticks time = 0;           ///< once around: durations, and the latencies between ranks
  int microbatches = 0;     ///< by which the microbatch numbers have grown then

  double period_ticks() const { return static_cast<double>(time) / static_cast<double>(microbatches); }
  /// The rank, when all actions are one rank's: it never waits.
  std::optional<int> only_rank() const;
};
/// "0F0 1F0 1B0 0B0, then 0F2"; of more than twelve actions the first and the last four.
std::string describe(const CriticalCycle& cycle);

/// The maximum cycle ratio of the steady state's constraint graph: nodes are the actions of as many microbatches as the
/// order repeats over, arcs their order on a rank and the transfers, each with the time from start to start and the
/// microbatches it leads on by; the largest time per microbatch of any cycle is the period to which every start settles
/// (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992, theorem 3.28). Found by Howard's
/// algorithm; of several critical cycles the one of a rank that never waits is preferred.
///
/// `generate` makes the schedule for any number of microbatches. Nothing when its order does not repeat, or holds
/// overlapped pairs.
std::optional<CriticalCycle> critical_cycle(const std::function<Program(int microbatches)>& generate,
                                            const StepTimes& times);

/// After how many microbatches the ranks' turns come round again: the least common multiple of the stages' replicas.
int microbatches_per_turn(const Program& program);

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

/// The regime into which a pipeline that never flushes settles.
struct SteadyState {
  Ticks window_ticks = 0;       ///< how much the makespan grows by `window_microbatches` more microbatches
  int window_microbatches = 0;  ///< whole rounds of the critical cycle
  int start_microbatches = 0;   ///< where the last window begins
  bool periodic = false;        ///< settled: the period is exact
  double fill_ticks = 0.0;      ///< makespan less microbatches * period: filling and draining, paid once
  double idle_fraction = 0.0;   ///< of the devices within the window, whatever they wait for

  double period_ticks() const { return static_cast<double>(window_ticks) / static_cast<double>(window_microbatches); }
};

/// Simulates growing numbers of microbatches until two windows in a row take the same time, that which critical_cycle()
/// predicts. A window is at least 4 microbatches a rank, in whole rounds of that cycle; it starts 1, 2, 4 … up to 64
/// windows into the run, because uneven stages settle slowly. Beyond that the last window is reported with
/// `periodic` unset, and as long as the cycle says that it will be. For a schedule without such a cycle (overlapped
/// pairs) two equal windows must do.
SteadyState steady_state(const std::function<Program(int microbatches)>& generate, const StepTimes& times);

}  // namespace flopcast
