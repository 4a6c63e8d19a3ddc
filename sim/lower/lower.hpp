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

/// Maps the forward of each stage, and its backward or input gradient, to the task that makes the result available.
/// Four bytes per action; a look-up is one load.
class ResultTable {
 public:
  /// Throws ConfigError (field "schedule") if the microbatch numbers leave gaps so large that the table would dwarf the
  /// program.
  explicit ResultTable(const Program& program);

  /// Throws ConfigError if the action was entered before. Ignores weight gradients, because no action waits for them.
  void enter(const Action& action, TaskId task) {
    if (action.kind == ActionKind::kWeightGradient) return;
    TaskId& entry = tasks_[index(action.stage, action.kind, action.microbatch)];
    if (entry != TaskGraph::kNone) refuse_twice(action);
    entry = task;
  }

  /// Task that produces a stage's result, of kind forward or (B or I) backward, for the action's microbatch. Throws
  /// ConfigError if no rank produces it.
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

/// The meaning of an engine task.
struct TaskLabel {
  Action action;  ///< the first of an overlapped pair; for a send, the action whose result it carries
  SpanKind kind = SpanKind::kForward;
};

struct StreamLabel {
  int rank = 0;
  StreamKind kind = StreamKind::kCompute;
};

/// A step as work for the engine, and the meaning of its tasks and streams.
struct LoweredStep {
  TaskGraph graph;
  std::vector<TaskLabel> labels;                          ///< indexed by task
  std::vector<StreamLabel> streams;                       ///< indexed by stream
  std::vector<std::pair<TaskId, Action>> second_of_pair;  ///< one entry per overlapped pair, in order of tasks
};

/// Turns a schedule and its times into tasks, with one compute stream per rank and, with a flush, one gradient stream.
///
/// - F of stage s waits for F of s - 1 in its chain; B and I wait for F of their stage and for B or I of s + 1; W waits
///   for its I. A dependency that the order of the stream implies is dropped, so a task of a valid program keeps at
///   most one.
/// - An overlapped pair is one task: it starts when both halves are ready, and both results exist at its end. It takes
///   the sum of both times less StageTimes::pair_saved, or StageTimes::fused.
/// - A transfer between ranks is a lag on the dependency: it costs latency only, never queues behind another and
///   leaves the device free. With StepTimes::blocking_sends it is a task of the sender's compute stream, right after
///   the action that produced it. Between stages of one rank nothing is sent.
/// - The flush follows a rank's last action. On the gradient stream: gradient reduction, embedding reduction (one
///   collective of the ranks of the first and the last stage, if these differ and it takes time), gradient norm (one
///   collective of all ranks) and parameter gather; on the compute stream: the optimizer, between norm and gather.
///   Operations that take no time on any rank are left out.
/// - Overlapped gradient reductions precede the flush on the gradient stream. A negative lag ties each of them to
///   the last backward action of its stage.
///
/// Left out: bandwidth shared by transfers.
/// Throws ConfigError (field "schedule") if an action that another needs is missing or listed twice. The order itself
/// may be wrong; run() then reports a deadlock.
LoweredStep lower(const Program& program, const StepTimes& times);
/// Same, but reuses the memory of `step`, whose contents are lost whether this succeeds or throws.
void lower(const Program& program, const StepTimes& times, LoweredStep& step);

/// Translates the engine's result into a timeline of the schedule. Throws ConfigError, naming the actions that wait for
/// each other, if the engine reported a deadlock. The title is the schedule's name; the unit is left to the caller.
Timeline make_timeline(const Program& program, const StepTimes& times, const LoweredStep& step,
                       const EngineResult& result);

/// Calls lower, run and make_timeline.
Timeline simulate(const Program& program, const StepTimes& times);

/// "rank 0 cannot start 0B0, which needs 1B0; …" for the first few blocked streams.
std::string describe_deadlock(const LoweredStep& step, const EngineResult& result);

/// Converts a list of numbers to times of a program's stages, per slice if microbatches are cut. A single number
/// applies to every stage; in a comparison it is the time of a rank's whole share of the model. A list with one number
/// per stage gives the stages' times; in a comparison, one with a number per rank gives the times of the ranks' shares.
/// Rounds to the nearest tick. Throws ConfigError about the field `name` for any other list.
std::vector<Ticks> spread_times(const char* name, const std::vector<Ticks>& list, const Program& program,
                                bool in_comparison);

/// Adds to a job's timeline the exchanges between its passes and the ranks of their experts: a dispatch and a combine
/// per layer with experts and direction, on a separate stream. An unpaired pass computes nothing meanwhile; the
/// exchanges of an overlapped pair are placed by paired_layers (model/cost/expert_costs.hpp). The layers of a stage are
/// drawn as if identical: its other computation and its host overhead are spread over them. A pass that recomputes its
/// exchanges shows them twice. Adds nothing if there would be more than `most` spans; returns their number.
std::size_t add_exchange_spans(const CostsByStage& stages, std::size_t most, Timeline& timeline);

}  // namespace flopcast
