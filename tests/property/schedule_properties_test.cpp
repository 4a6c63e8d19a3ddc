// Invariants of random schedules, sizes, stage times, latencies and flushes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/property/generators.hpp"
#include "tests/support/lower_replicas.hpp"

namespace flopcast {
namespace {

struct Run {
  Program program;
  StepTimes times;
  int microbatches = 0;
};

Program random_program(int& microbatches) {
  while (true) {
    const std::vector<ScheduleInfo>& catalogue = schedule_catalogue();
    const ScheduleInfo& info = catalogue[between<std::size_t>(0, catalogue.size())];
    ScheduleRequest request;
    request.pipeline_ranks = between(1, 9);
    const bool whole_rounds = *rc::gen::arbitrary<bool>();  // as interleaving requires
    request.microbatches = whole_rounds ? request.pipeline_ranks * between(1, 4) : between(1, 25);
    if (info.uses_chunks) request.chunks = between(1, 4);
    if (!info.variants.empty()) request.variant = std::string(*rc::gen::elementOf(info.variants));
    if (refuse_request(info, request)) continue;
    Program program = generate_schedule(info, request);
    // Two chains and pairs need different checks: bidirectional_properties_test.
    if (info.name == "dualpipev" || program.chains.size() > 1) continue;
    microbatches = program.microbatches_of(program.chains.front());
    return program;
  }
}

// Splits some backward passes into I and W, with W delayed at random behind later actions of its rank.
void split_backwards(Program& program) {
  for (std::vector<Action>& actions : program.ranks) {
    std::vector<Action> split;
    std::vector<Action> held;
    for (const Action& action : actions) {
      if (action.kind != ActionKind::kBackward) {
        split.push_back(action);
        continue;
      }
      Action input = action;
      input.kind = ActionKind::kInputGradient;
      split.push_back(input);
      held.push_back(action);
      held.back().kind = ActionKind::kWeightGradient;
      while (!held.empty() && *rc::gen::arbitrary<bool>()) {
        split.push_back(held.front());
        held.erase(held.begin());
      }
    }
    split.insert(split.end(), held.begin(), held.end());
    actions = split;
  }
}

StepTimes random_times(const Program& program) {
  StepTimes times;
  const Ticks longest = *rc::gen::element<Ticks>(1, 10, 1'000'000'000'000);
  const auto any = [&] { return between<Ticks>(0, longest + 1); };
  for (int stage = 0; stage < program.stage_count(); ++stage) {
    StageTimes of_stage;
    of_stage.forward = any();
    of_stage.input_gradient = any();
    of_stage.weight_gradient = any();
    of_stage.backward = of_stage.input_gradient + of_stage.weight_gradient;
    times.stages.push_back(of_stage);
    if (stage > 0) times.boundaries.push_back(BoundaryTimes{any(), any()});
  }
  times.blocking_sends = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>() && !program.asynchronous) {
    const Ticks embedding = any();
    const Ticks norm = any();
    for (int rank = 0; rank < program.rank_count(); ++rank) {
      times.flush.push_back(FlushTimes{any(), embedding, norm, any(), any()});
    }
    if (*rc::gen::arbitrary<bool>()) {
      times.overlapped_reductions.resize(program.ranks.size());
      for (int stage = 0; stage < program.stage_count(); ++stage) {
        const std::size_t rank = static_cast<std::size_t>(program.rank_of_stage[static_cast<std::size_t>(stage)]);
        times.overlapped_reductions[rank].push_back(OverlappedReduction{stage, any(), any()});
      }
    }
  }
  return times;
}

Run random_run() {
  Run run;
  run.program = random_program(run.microbatches);
  if (*rc::gen::arbitrary<bool>()) split_backwards(run.program);
  run.times = random_times(run.program);
  return run;
}

const Span* find_span(const Timeline& timeline, int rank, const Action& action) {
  for (const Span& span : timeline.ranks[static_cast<std::size_t>(rank)]) {
    if (is_action(span.kind) && span.action == action) return &span;
  }
  return nullptr;
}

RC_GTEST_PROP(ScheduleProperties, EveryActionRunsOnceOnItsRankAndForItsDuration, ()) {
  const Run run = random_run();
  const Timeline timeline = simulate(run.program, run.times);
  std::set<std::tuple<int, int, int>> seen;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    for (const Span& span : timeline.ranks[rank]) {
      RC_ASSERT(span.start >= 0 && span.start <= span.end);
      if (!is_action(span.kind)) continue;
      RC_ASSERT(run.program.rank_of_stage[span.action.stage] == static_cast<int>(rank));
      const auto [entry, is_new] =
          seen.emplace(span.action.stage, static_cast<int>(span.action.kind), static_cast<int>(span.action.microbatch));
      RC_ASSERT(is_new);
    }
  }
  for (int stage = 0; stage < run.program.stage_count(); ++stage) {
    for (int microbatch = 0; microbatch < run.microbatches; ++microbatch) {
      const auto count = [&](ActionKind kind) { return seen.count({stage, static_cast<int>(kind), microbatch}); };
      RC_ASSERT(count(ActionKind::kForward) == 1U);
      RC_ASSERT(count(ActionKind::kBackward) + count(ActionKind::kInputGradient) == 1U);
      RC_ASSERT(count(ActionKind::kInputGradient) == count(ActionKind::kWeightGradient));
    }
  }
  RC_TAG(run.program.schedule);
}

RC_GTEST_PROP(ScheduleProperties, NothingOverlapsOnAStream, ()) {
  const Run run = random_run();
  const Timeline timeline = simulate(run.program, run.times);
  for (const std::vector<Span>& spans : timeline.ranks) {
    std::map<StreamKind, Ticks> free_at;
    for (const Span& span : spans) {
      RC_ASSERT(span.start >= free_at[span.stream]);
      free_at[span.stream] = span.end;
    }
  }
}

RC_GTEST_PROP(ScheduleProperties, ActionsStartAfterWhatTheyNeedHasArrived, ()) {
  const Run run = random_run();
  const Timeline timeline = simulate(run.program, run.times);
  const int last_stage = run.program.stage_count() - 1;
  for (int stage = 0; stage <= last_stage; ++stage) {
    const int rank = run.program.rank_of_stage[static_cast<std::size_t>(stage)];
    for (const Span& span : timeline.ranks[static_cast<std::size_t>(rank)]) {
      if (!is_action(span.kind) || span.action.stage != stage) continue;
      Action needed = span.action;
      if (span.kind != SpanKind::kForward) {
        needed.kind = span.kind == SpanKind::kWeightGradient ? ActionKind::kInputGradient : ActionKind::kForward;
        const Span* own = find_span(timeline, rank, needed);
        RC_ASSERT(own != nullptr && own->end <= span.start);
      }
      if (span.kind == SpanKind::kWeightGradient) continue;
      const int from = stage + (span.kind == SpanKind::kForward ? -1 : 1);
      if (from < 0 || from > last_stage) continue;
      const BoundaryTimes& boundary = run.times.boundaries[static_cast<std::size_t>(std::min(stage, from))];
      const int from_rank = run.program.rank_of_stage[static_cast<std::size_t>(from)];
      needed = span.action;
      needed.stage = static_cast<std::uint16_t>(from);
      const Span* arrived = find_span(timeline, from_rank, needed);
      RC_ASSERT(arrived != nullptr);
      const Ticks latency = span.kind == SpanKind::kForward ? boundary.forward : boundary.backward;
      RC_ASSERT(arrived->end + (from_rank == rank ? 0 : latency) <= span.start);
    }
  }
}

RC_GTEST_PROP(ScheduleProperties, SendsMatchReceives, ()) {
  const Run run = random_run();
  const Timeline timeline = simulate(run.program, run.times);
  std::size_t expected = 0;
  for (std::size_t stage = 1; stage < run.program.rank_of_stage.size(); ++stage) {
    if (run.program.rank_of_stage[stage] == run.program.rank_of_stage[stage - 1]) continue;
    expected += 2 * static_cast<std::size_t>(run.microbatches);
  }
  RC_ASSERT(timeline.transfers.size() == expected);
  std::set<std::tuple<int, int, int>> received;
  for (const Transfer& transfer : timeline.transfers) {
    RC_ASSERT(transfer.from_rank != transfer.to_rank);
    RC_ASSERT(run.program.rank_of_stage[transfer.to_stage] == static_cast<int>(transfer.to_rank));
    RC_ASSERT(run.program.rank_of_stage[transfer.produced_by.stage] == static_cast<int>(transfer.from_rank));
    RC_ASSERT(received
                  .emplace(transfer.to_stage, static_cast<int>(transfer.produced_by.kind),
                           static_cast<int>(transfer.produced_by.microbatch))
                  .second);
  }
}

RC_GTEST_PROP(ScheduleProperties, EveryTickOfEveryRankIsAccountedForOnce, ()) {
  const Run run = random_run();
  const Timeline timeline = simulate(run.program, run.times);
  const TimelineMetrics metrics = measure(timeline);
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankMetrics& of_rank = metrics.ranks[rank];
    RC_ASSERT(of_rank.busy + of_rank.exposed() + of_rank.bubble() == metrics.makespan);
    RC_ASSERT(of_rank.exposed_pipeline >= 0 && of_rank.exposed_data_parallel >= 0);
    for (const Ticks cause : of_rank.bubble_by_cause) RC_ASSERT(cause >= 0);
    Ticks computed = 0;
    for (const Action& action : run.program.ranks[rank]) {
      const StageTimes& times = run.times.stages[action.stage];
      computed += action.kind == ActionKind::kForward         ? times.forward
                  : action.kind == ActionKind::kBackward      ? times.backward
                  : action.kind == ActionKind::kInputGradient ? times.input_gradient
                                                              : times.weight_gradient;
    }
    if (!run.times.flush.empty()) computed += run.times.flush[rank].optimizer;
    RC_ASSERT(of_rank.busy == computed);
  }
  RC_ASSERT(metrics.idle_fraction() >= metrics.bubble_fraction() - 1e-12);
}

RC_GTEST_PROP(ScheduleProperties, TheCriticalPathExplainsTheMakespan, ()) {
  const Run run = random_run();
  const Timeline timeline = simulate(run.program, run.times);
  const CriticalPath path = critical_path(timeline);
  RC_ASSERT(path.total() == timeline.makespan());
  RC_ASSERT(path.wait == 0);
  Ticks now = 0;
  for (const CriticalStep& step : path.steps) {
    RC_ASSERT(step.wait == 0 && step.lag >= 0);
    RC_ASSERT(step.span.start == now);
    RC_ASSERT(step.time >= 0 && step.time <= step.span.end - step.span.start);
    now += step.time + step.lag;
  }
  RC_ASSERT(now == timeline.makespan());
}

RC_GTEST_PROP(ScheduleProperties, MemoryNeverFallsBelowItsBaseAndReturnsToIt, ()) {
  const Run run = random_run();
  const Timeline timeline = simulate(run.program, run.times);
  const std::vector<int> peaks = [&] {
    std::vector<int> in_flight;
    for (const RankMetrics& rank : measure(timeline).ranks) in_flight.push_back(rank.peak_in_flight);
    return in_flight;
  }();
  std::vector<double> held(run.program.rank_of_stage.size(), 1.0);
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    const RankMemory memory = memory_over_time(timeline, rank, 3.5, held);
    RC_ASSERT(memory.points.front().time == 0);
    RC_ASSERT(memory.points.back().bytes == 3.5);
    for (std::size_t index = 0; index < memory.points.size(); ++index) {
      RC_ASSERT(memory.points[index].bytes >= 3.5 && memory.points[index].bytes <= memory.peak_bytes);
      if (index > 0) RC_ASSERT(memory.points[index].time > memory.points[index - 1].time);
    }
    RC_ASSERT(memory.peak_bytes == 3.5 + peaks[static_cast<std::size_t>(rank)]);
  }
}

RC_GTEST_PROP(ScheduleProperties, TheSameInputGivesTheSameTimeline, ()) {
  const Run run = random_run();
  const Timeline first = simulate(run.program, run.times);
  const Timeline second = simulate(run.program, run.times);
  RC_ASSERT(first.transfers.size() == second.transfers.size());
  for (std::size_t rank = 0; rank < first.ranks.size(); ++rank) {
    RC_ASSERT(first.ranks[rank].size() == second.ranks[rank].size());
    for (std::size_t index = 0; index < first.ranks[rank].size(); ++index) {
      const Span& a = first.ranks[rank][index];
      const Span& b = second.ranks[rank][index];
      RC_ASSERT(a.start == b.start && a.end == b.end && a.action == b.action && a.kind == b.kind);
    }
  }
}

// Overlapping random neighbours often closes a cycle; if it does not, a pair is two simultaneous spans.
RC_GTEST_PROP(ScheduleProperties, OverlappedPairsRunTogetherOrAreADeadlock, ()) {
  Run run = random_run();
  for (std::vector<Action>& actions : run.program.ranks) {
    for (std::size_t index = 0; index + 1 < actions.size(); ++index) {
      if (actions[index].kind != ActionKind::kForward || actions[index + 1].kind == ActionKind::kForward) continue;
      if (actions[index].stage == actions[index + 1].stage &&
          actions[index].microbatch == actions[index + 1].microbatch) {
        continue;
      }
      actions[index].overlaps_next = between(0, 4) == 0;
    }
  }
  for (StageTimes& stage : run.times.stages) stage.fused = between<Ticks>(0, 30);
  const LoweredStep step = lower(run.program, run.times);
  const EngineResult result = flopcast::run(step.graph);
  RC_TAG(result.deadlocked() ? "deadlock" : step.second_of_pair.empty() ? "no pair" : "runs through");
  if (result.deadlocked()) {
    RC_ASSERT_THROWS_AS(make_timeline(run.program, run.times, step, result), ConfigError);
    return;
  }
  const Timeline timeline = make_timeline(run.program, run.times, step, result);
  std::size_t pairs = 0;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (std::size_t index = 0; index < spans.size(); ++index) {
      if (!is_action(spans[index].kind) || !spans[index].action.overlaps_next) continue;
      ++pairs;
      RC_ASSERT(spans[index + 1].start == spans[index].start && spans[index + 1].end == spans[index].end);
      RC_ASSERT(spans[index].end - spans[index].start == *run.times.stages[spans[index].action.stage].fused);
    }
  }
  RC_ASSERT(pairs == step.second_of_pair.size());
  const TimelineMetrics metrics = measure(timeline);
  for (const RankMetrics& rank : metrics.ranks) {
    RC_ASSERT(rank.busy + rank.exposed() + rank.bubble() == metrics.makespan);
  }
  const CriticalPath path = critical_path(timeline);
  RC_ASSERT(path.total() == metrics.makespan);
  RC_ASSERT(path.wait == 0);
}

// Every replica and every tensor-parallel rank runs the same step, so all ranks together take as long as one pipeline
// whose actions include the collectives that follow them.
RC_GTEST_PROP(ScheduleProperties, AllRanksOfAllReplicasTakeAsLongAsOne, ()) {
  Run run = random_run();
  run.times.blocking_sends = false;
  run.times.overlapped_reductions.clear();
  Replicas replicas;
  replicas.data_parallel = between(1, 4);
  replicas.tensor_parallel = between(1, 4);
  StepTimes one = run.times;
  for (StageTimes& stage : one.stages) {
    const StageTimes shared{
        between<Ticks>(0, 20), between<Ticks>(0, 20), between<Ticks>(0, 20), between<Ticks>(0, 20), {}};
    replicas.collectives.push_back(shared);
    if (replicas.tensor_parallel == 1) continue;
    stage.forward += shared.forward;
    stage.backward += shared.backward;
    stage.input_gradient += shared.input_gradient;
    stage.weight_gradient += shared.weight_gradient;
  }
  const TaskGraph graph = lower_replicas(run.program, run.times, replicas);
  graph.check();
  const EngineResult all = flopcast::run(graph);
  RC_ASSERT(!all.deadlocked());
  RC_ASSERT(all.makespan == flopcast::run(lower(run.program, one).graph).makespan);
}

RC_GTEST_PROP(ScheduleProperties, SchedulesTakeWhatTheirClosedFormsSay, ()) {
  const std::vector<ScheduleInfo>& catalogue = schedule_catalogue();
  const ScheduleInfo& info = catalogue[between<std::size_t>(0, catalogue.size())];
  ScheduleRequest request;
  request.pipeline_ranks = between(1, 12);
  request.microbatches = between(1, 60);
  if (info.uses_chunks) request.chunks = between(1, 4);
  RC_PRE(!refuse_request(info, request));
  UniformTimes uniform{between<Ticks>(1, 100), between<Ticks>(1, 100), between<Ticks>(0, 200)};
  uniform.weight_gradient = between<Ticks>(0, uniform.backward + 1);
  const std::optional<Ticks> expected = info.exact_makespan(request, uniform);
  if (!expected) {
    RC_TAG("no closed form");
    return;
  }
  const Program program = generate_schedule(info, request);
  StepTimes times;
  times.stages.assign(
      program.rank_of_stage.size(),
      StageTimes{uniform.forward, uniform.backward, uniform.input_gradient(), uniform.weight_gradient, {}});
  times.boundaries.assign(program.rank_of_stage.size() - 1, BoundaryTimes{uniform.latency, uniform.latency});
  RC_ASSERT(flopcast::run(lower(program, times).graph).makespan == *expected);
  RC_TAG(std::string(info.name));
}

RC_GTEST_PROP(ScheduleProperties, NoRunIsShorterThanItsBusiestRankOrItsLongestMicrobatch, ()) {
  const Run run = random_run();
  const TimelineMetrics metrics = measure(simulate(run.program, run.times));
  Ticks one_microbatch = 0;
  for (const StageTimes& stage : run.times.stages) one_microbatch += stage.forward + stage.input_gradient;
  RC_ASSERT(metrics.makespan >= one_microbatch);
  for (const RankMetrics& rank : metrics.ranks) RC_ASSERT(metrics.makespan >= rank.busy);
}

}  // namespace
}  // namespace flopcast
