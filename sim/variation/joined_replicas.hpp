#pragma once

#include <cstddef>
#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast {

/// One training step of data-parallel replicas whose passes take times of their own. Each replica's pipeline runs by
/// itself up to the gradient reductions, which are collectives of all replicas: each starts when the last replica is
/// ready for it. From there on all replicas do the same.
///
/// With the plain times in every replica the answer is that of simulate(), to the tick.
/// Left out: whatever else replicas do together; who has replicas that gather weights or exchange tokens within passes
/// adds the slowest of them, pass by pass, as one.
class JoinedReplicas {
 public:
  /// Of a schedule that flushes; the times need a flush.
  JoinedReplicas(const Program& program, const StepTimes& times);

  /// The work of one replica ahead of its flush, by task: passes, overlapped pairs and sends that block.
  const LoweredStep& work() const { return work_; }
  /// Of an overlapped pair, what runs beside labels[task]; null for every other task.
  const Action* second_of_pair(TaskId task) const;

  /// Forgets the replicas of the step before.
  void begin();
  /// A replica, by the duration of each task of its work.
  void add_replica(const std::vector<Ticks>& durations);
  /// The end of the step; `optimizer` has the time of the slowest replica by pipeline rank.
  Ticks end_of_step(const std::vector<Ticks>& optimizer);

 private:
  // An overlapped reduction starts `early` before the end of a pass of that duration, in proportion to it.
  struct EarlyReduction {
    TaskId pass = 0;
    Ticks early = 0;
    Ticks pass_duration = 0;
    Ticks duration = 0;
    Ticks ready = 0;  // of the latest replica
  };
  void find_early_reductions(const Program& program, const StepTimes& times);
  void shape_flush(const Program& program, const StepTimes& times);

  LoweredStep work_;
  EngineResult result_;
  std::vector<std::vector<EarlyReduction>> reductions_;  // by rank
  std::vector<Ticks> last_end_;                          // by rank, of the latest replica
  Program flush_;  // each rank's whole work as one pass, followed by the step's own flush
  StepTimes flush_times_;
  LoweredStep lowered_flush_;
};

}  // namespace flopcast
