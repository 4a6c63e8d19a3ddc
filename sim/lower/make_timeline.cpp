#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/needs.hpp"
#include "sim/program/weight_versions.hpp"

namespace flopcast {

namespace {

class TimelineBuilder {
 public:
  TimelineBuilder(const Program& program, const StepTimes& times, const LoweredStep& step, const EngineResult& result)
      : program_(program),
        step_(step),
        result_(result),
        times_(times),
        needs_(needs_of(program, times)),
        blocking_(times.blocking_sends) {
    timeline_.title = program.schedule;
    timeline_.ranks.resize(program.ranks.size());
    timeline_.slices_per_microbatch = program.slices_per_microbatch;
    timeline_.frees_in_pairs = program.frees_in_pairs;
    timeline_.model_copies = std::max(1, static_cast<int>(program.chains.size()));
  }

  Timeline build() {
    for (StreamId stream = 0; stream < step_.graph.stream_count(); ++stream) add_stream(stream);
    // What takes no time comes before what starts as it ends.
    for (std::vector<Span>& spans : timeline_.ranks) {
      std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
        return std::tie(a.start, a.end) < std::tie(b.start, b.end);
      });
    }
    std::stable_sort(timeline_.transfers.begin(), timeline_.transfers.end(),
                     [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
    if (program_.accumulation > 0) track_weights();
    return std::move(timeline_);
  }

 private:
  void track_weights();
  void add_stream(StreamId stream);
  void add_span(const StreamLabel& where, TaskId task, const TaskLabel& label);
  void add_transfer(TaskId task, const TaskLabel& label);

  const Program& program_;
  const LoweredStep& step_;
  const EngineResult& result_;
  const StepTimes& times_;
  Needs needs_;
  bool blocking_;
  std::size_t next_pair_ = 0;
  Timeline timeline_;
};

void TimelineBuilder::track_weights() {
  WeightTrack track;
  for (StageVersions& stage : weight_versions(program_, program_.weight_policy, program_.accumulation)) {
    track.forward.push_back(std::move(stage.version));
    track.backward.push_back(std::move(stage.backward_version));
  }
  for (const std::vector<Span>& spans : timeline_.ranks) {
    std::vector<Ticks>& updates = track.updates.emplace_back();
    int backwards = 0;
    for (const Span& span : spans) {
      if (span.kind != SpanKind::kBackward && span.kind != SpanKind::kWeightGradient) continue;
      if (++backwards % program_.accumulation == 0) updates.push_back(span.end);
    }
  }
  timeline_.weights = std::move(track);
}

void TimelineBuilder::add_stream(StreamId stream) {
  const StreamLabel& where = step_.streams[stream];
  for (TaskId task = step_.graph.first_task(stream); task < step_.graph.first_task(stream + 1); ++task) {
    const TaskLabel& label = step_.labels[task];
    add_span(where, task, label);
    if (next_pair_ < step_.second_of_pair.size() && step_.second_of_pair[next_pair_].first == task) {
      const Action& second = step_.second_of_pair[next_pair_++].second;
      add_span(where, task, TaskLabel{second, span_kind(second.kind)});
    }
  }
}

void TimelineBuilder::add_span(const StreamLabel& where, TaskId task, const TaskLabel& label) {
  timeline_.ranks[static_cast<std::size_t>(where.rank)].push_back(
      Span{result_.start[task], result_.end[task], label.action, label.kind, where.kind});
  if (blocking_ ? label.kind == SpanKind::kSend : is_action(label.kind)) add_transfer(task, label);
}

void TimelineBuilder::add_transfer(TaskId task, const TaskLabel& label) {
  const Action& action = label.action;
  const Needs::Neighbour& to = needs_.result_of(action);
  if (!to.crosses) return;
  Transfer transfer;
  transfer.start = blocking_ ? result_.start[task] : result_.end[task];
  transfer.end =
      blocking_ ? result_.end[task] : transfer.start + needs_.result_latency(times_, action.kind, action.stage);
  transfer.produced_by = action;
  transfer.to_stage = to.stage;
  transfer.from_rank = needs_.rank_of(action);
  transfer.to_rank = to.rank_of(action.microbatch);
  timeline_.transfers.push_back(transfer);
}

std::string describe_task(const TaskLabel& label) {
  if (label.kind == SpanKind::kSend) return fmt::format("the send of {}", to_string(label.action));
  return is_action(label.kind) ? to_string(label.action) : std::string(name_of(label.kind));
}

constexpr std::size_t kBlockedStreamsNamed = 4;

}  // namespace

std::string describe_deadlock(const LoweredStep& step, const EngineResult& result) {
  std::string text;
  const std::size_t named = std::min(result.blocked.size(), kBlockedStreamsNamed);
  for (std::size_t index = 0; index < named; ++index) {
    const BlockedStream& blocked = result.blocked[index];
    if (index > 0) text += "; ";
    text += fmt::format("rank {} cannot start {}", step.streams[blocked.stream].rank,
                        describe_task(step.labels[blocked.head]));
    if (blocked.awaited != blocked.head)
      text += fmt::format(", which needs {}", describe_task(step.labels[blocked.awaited]));
  }
  if (named < result.blocked.size()) text += fmt::format("; and {} more ranks wait", result.blocked.size() - named);
  return text;
}

Timeline make_timeline(const Program& program, const StepTimes& times, const LoweredStep& step,
                       const EngineResult& result) {
  if (result.deadlocked()) {
    throw ConfigError(Diagnostic{"schedule", "deadlock: " + describe_deadlock(step, result), "",
                                 "reorder the actions so that each comes after those it needs"});
  }
  return TimelineBuilder(program, times, step, result).build();
}

Timeline simulate(const Program& program, const StepTimes& times) {
  const LoweredStep step = lower(program, times);
  return make_timeline(program, times, step, run(step.graph));
}

}  // namespace flopcast
