#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"

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

}  // namespace flopcast
