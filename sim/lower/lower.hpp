#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

class CostsByStage;

/// Which task makes the result of a stage's forward, and of its backward or input gradient, available to others.
/// Four bytes per action; a look-up is one load.
class ResultTable {
 public:
  /// Throws ConfigError (field "schedule") when the microbatch numbers leave gaps so large that the table would dwarf
  /// the program.
  explicit ResultTable(const Program& program);

  /// Throws ConfigError when the action has been entered before. Weight gradients produce nothing others wait for.
  void enter(const Action& action, TaskId task) {
    if (action.kind == ActionKind::kWeightGradient) return;
    TaskId& entry = tasks_[index(action.stage, action.kind, action.microbatch)];
    if (entry != TaskGraph::kNone) refuse_twice(action);
    entry = task;
  }

  /// The result of a stage that the action waits for, of kind forward or (B or I) backward, for the action's
  /// microbatch. Throws ConfigError when nobody produces it.
  TaskId find(const Action& action, std::uint16_t stage, ActionKind kind) const {
    const TaskId task = tasks_[index(stage, kind, action.microbatch)];
    if (task == TaskGraph::kNone) refuse_missing(action, stage, kind);
    return task;
  }

 private:
  std::size_t index(std::size_t stage, ActionKind kind, std::uint32_t microbatch) const {
    return (2 * stage + (kind == ActionKind::kForward ? 0 : 1)) * microbatches_ + microbatch;
  }
  [[noreturn]] static void refuse_twice(const Action& action);
  [[noreturn]] static void refuse_missing(const Action& action, std::uint16_t stage, ActionKind kind);

  std::size_t microbatches_ = 0;
  std::vector<TaskId> tasks_;
};

/// What a task of the engine means.
struct TaskLabel {
  Action action;  ///< of an overlapped pair the first; of a send the one whose result it carries
  SpanKind kind = SpanKind::kForward;
};

struct StreamLabel {
  int rank = 0;
  StreamKind kind = StreamKind::kCompute;
};

/// A step as work for the engine, and what each of its tasks and streams stands for.
struct LoweredStep {
  TaskGraph graph;
  std::vector<TaskLabel> labels;                          ///< by task
  std::vector<StreamLabel> streams;                       ///< by stream
  std::vector<std::pair<TaskId, Action>> second_of_pair;  ///< of each overlapped pair, in order of tasks
};

/// Turns a schedule and its times into tasks, one compute stream a rank and, with a flush, one gradient stream.
///
/// - F of stage s waits for F of s - 1 in its chain, B and I for F of their own stage and for B or I of s + 1, W for
/// its I.
///   A dependency that the order of the stream implies is dropped, so at most one is left in a valid program.
/// - An overlapped pair is one task: it starts when both halves are ready and both results exist at its end. It takes
/// as long as both, less StageTimes::pair_saved, or StageTimes::fused.
/// - A transfer between ranks is a lag on the dependency: it costs latency only, is never queued behind another and
///   leaves the device free. With StepTimes::blocking_sends it is a task of the sender's compute stream, right after
///   the action that produced it. Between stages of one rank nothing is sent.
/// - The flush of a rank, after its last action: gradient reduction, embedding reduction (one collective of the ranks
/// of
///   the first and the last stage, where these differ and it takes time), gradient norm (one collective of all ranks)
///   and parameter gather on the gradient stream, the optimizer on the compute stream between norm and gather. What
///   takes no time on any rank is left out.
///
/// - Overlapped gradient reductions come before the flush on the gradient stream, each bound to the last backward
/// action
///   of its stage by a negative lag.
///
/// Left out: bandwidth shared by transfers.
/// Throws ConfigError (field "schedule") when an action that another needs is missing or listed twice; the order itself
/// may be wrong, which run() then reports as a deadlock.
LoweredStep lower(const Program& program, const StepTimes& times);
/// The same into a step whose memory is reused; what it held is gone, whether this succeeds or throws.
void lower(const Program& program, const StepTimes& times, LoweredStep& step);

/// What the engine found, in the words of the schedule. Throws ConfigError, naming the actions that wait for each
/// other, when the engine reported a deadlock. Title and unit are left to the caller.
Timeline make_timeline(const Program& program, const StepTimes& times, const LoweredStep& step,
                       const EngineResult& result);

/// lower, run and make_timeline.
Timeline simulate(const Program& program, const StepTimes& times);

/// "rank 0 cannot start 0B0, which needs 1B0 of rank 1; …" for the first few blocked streams.
std::string describe_deadlock(const LoweredStep& step, const EngineResult& result);

/// The numbers of a list as times of a program's stages, of one slice where microbatches are cut. One number is
/// every stage's, and in a comparison that of a rank's whole share of the model; as many numbers as stages are theirs;
/// in a comparison as many as ranks are those of each rank's share. Rounded to the nearest tick. Throws ConfigError for
/// any other list, about the field `name`.
std::vector<Ticks> spread_times(const char* name, const std::vector<Ticks>& list, const Program& program,
                                bool in_comparison);

/// Adds to a job's timeline what its passes exchange with the ranks of their experts: a dispatch and a combine for each
/// layer with experts and direction, on a stream of their own. A pass by itself computes nothing meanwhile; those of a
/// pair lie where paired_layers (model/cost/expert_costs.hpp) puts them. Layers of a stage are drawn as if alike: what
/// else it computes, and what its host adds, is spread over them. A pass that recomputes its exchanges shows them
/// twice. Nothing is added where more than `most` spans would be; returns how many there are.
std::size_t add_exchange_spans(const CostsByStage& stages, std::size_t most, Timeline& timeline);

}  // namespace flopcast
