#include "sim/variation/step_distribution.hpp"

#include <algorithm>
#include <cmath>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

// Stages of the flush's program: one per rank, between two that mark the ends of the model.
constexpr std::size_t kFirstRankStage = 1;

Ticks scaled(Ticks time, Ticks before, Ticks now) {
  if (before == now || before == 0) return time;
  return static_cast<Ticks>(
      std::llround(static_cast<double>(time) * (static_cast<double>(now) / static_cast<double>(before))));
}

}  // namespace

SynchronizedReplicas::SynchronizedReplicas(const Program& program, const StepTimes& times)
    : last_end_(program.ranks.size(), 0) {
  FLOPCAST_CHECK(times.flush.size() == program.ranks.size());
  StepTimes passes = times;
  passes.flush.clear();
  passes.overlapped_reductions.clear();
  lower(program, passes, work_);
  work_.graph.separate_costs();
  find_early_reductions(program, times);
  shape_flush(program, times);
}

const Action* SynchronizedReplicas::second_of_pair(TaskId task) const {
  const auto pair =
      std::lower_bound(work_.second_of_pair.begin(), work_.second_of_pair.end(), task,
                       [](const std::pair<TaskId, Action>& entry, TaskId wanted) { return entry.first < wanted; });
  return pair != work_.second_of_pair.end() && pair->first == task ? &pair->second : nullptr;
}

// Lowering decides which pass a reduction follows; its compute streams start with exactly the tasks of work_.
void SynchronizedReplicas::find_early_reductions(const Program& program, const StepTimes& times) {
  reductions_.resize(program.ranks.size());
  if (times.overlapped_reductions.empty()) return;
  const LoweredStep step = lower(program, times);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const StreamId compute = static_cast<StreamId>(2 * rank);
    for (std::size_t index = 0; index < times.overlapped_reductions[rank].size(); ++index) {
      const TaskId task = step.graph.first_task(compute + 1) + static_cast<TaskId>(index);
      const Dependency after = step.graph.dependencies_of(task).at(0);
      EarlyReduction reduction;
      reduction.pass =
          work_.graph.first_task(static_cast<StreamId>(rank)) + after.task - step.graph.first_task(compute);
      reduction.early = -after.lag;
      reduction.pass_duration = step.graph.duration_of(after.task);
      reduction.duration = step.graph.duration_of(task);
      reductions_[rank].push_back(reduction);
    }
  }
}

void SynchronizedReplicas::shape_flush(const Program& program, const StepTimes& times) {
  const std::size_t ranks = program.ranks.size();
  flush_.ranks.resize(ranks);
  flush_.rank_of_stage.assign(1, program.rank_of_stage.front());
  flush_times_.flush = times.flush;
  flush_times_.overlapped_reductions.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto stage = static_cast<std::uint16_t>(rank + kFirstRankStage);
    flush_.ranks[rank] = {{0, stage, ActionKind::kForward, false}, {0, stage, ActionKind::kBackward, false}};
    flush_.rank_of_stage.push_back(static_cast<int>(rank));
    for (const EarlyReduction& reduction : reductions_[rank]) {
      flush_times_.overlapped_reductions[rank].push_back({stage, 0, reduction.duration});
    }
  }
  flush_.rank_of_stage.push_back(program.rank_of_stage.back());
  const int stages = flush_.stage_count();
  for (int stage = 0; stage < stages; ++stage) flush_.chains.push_back({stage, stage});
  flush_times_.stages.resize(static_cast<std::size_t>(stages));
  flush_times_.boundaries.resize(static_cast<std::size_t>(stages - 1));
}

void SynchronizedReplicas::begin() {
  std::fill(last_end_.begin(), last_end_.end(), Ticks{0});
  for (std::vector<EarlyReduction>& of_rank : reductions_) {
    for (EarlyReduction& reduction : of_rank) reduction.ready = 0;
  }
}

void SynchronizedReplicas::add_replica(const std::vector<Ticks>& durations) {
  TaskGraph& graph = work_.graph;
  FLOPCAST_CHECK(durations.size() == graph.task_count());
  for (TaskId task = 0; task < graph.task_count(); ++task) graph.set_duration(task, durations[task]);
  run(graph, result_);
  FLOPCAST_CHECK(!result_.deadlocked());
  for (std::size_t rank = 0; rank < last_end_.size(); ++rank) {
    const StreamId stream = static_cast<StreamId>(rank);
    const TaskId past_last = graph.first_task(stream + 1);
    if (past_last > graph.first_task(stream)) last_end_[rank] = std::max(last_end_[rank], result_.end[past_last - 1]);
    for (EarlyReduction& reduction : reductions_[rank]) {
      const Ticks early = scaled(reduction.early, reduction.pass_duration, durations[reduction.pass]);
      reduction.ready = std::max(reduction.ready, result_.end[reduction.pass] - early);
    }
  }
}

Ticks SynchronizedReplicas::end_of_step(const std::vector<Ticks>& optimizer) {
  FLOPCAST_CHECK(optimizer.size() == last_end_.size());
  for (std::size_t rank = 0; rank < last_end_.size(); ++rank) {
    flush_times_.stages[rank + kFirstRankStage].backward = last_end_[rank];
    flush_times_.flush[rank].optimizer = optimizer[rank];
    std::vector<OverlappedReduction>& overlapped = flush_times_.overlapped_reductions[rank];
    for (std::size_t index = 0; index < overlapped.size(); ++index) {
      overlapped[index].ready_before_end = last_end_[rank] - reductions_[rank][index].ready;
    }
  }
  lower(flush_, flush_times_, lowered_flush_);
  run(lowered_flush_.graph, result_);
  return result_.makespan;
}

}  // namespace flopcast
