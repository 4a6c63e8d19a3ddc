#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

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

}  // namespace flopcast
