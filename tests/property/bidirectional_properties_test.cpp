// Schedules with two chains, folded stages, waves, small groups, limited memory and token slices at random sizes: they
// are executable, stay within their memory, and take as long as their formulas predict.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/property/generators.hpp"

namespace flopcast {
namespace {

constexpr int kLargestPipeline = 16;
constexpr int kMostMicrobatches = 64;

// A request that the schedule accepts: sizes are drawn until one is accepted.
ScheduleRequest draw_request(std::string_view name) {
  const ScheduleInfo& info = *find_schedule(name);
  while (true) {
    ScheduleRequest request;
    request.pipeline_ranks = between(1, kLargestPipeline + 1);
    request.microbatches = between(1, kMostMicrobatches + 1);
    if (info.uses_chunks) request.chunks = between(1, 5);
    if (!info.variants.empty()) request.variant = std::string(*rc::gen::elementOf(info.variants));
    if (name == "gis" && between(0, 2) == 0) request.group_size = between(1, request.pipeline_ranks + 1);
    if ((name == "dapple" || name == "hanayo") && between(0, 3) > 0)
      request.memory_limit = between(1, 2 * request.pipeline_ranks + 1);
    if (name == "terapipe" && between(0, 3) > 0) request.slices = between(1, 9);
    if (!refuse_request(info, request)) return request;
  }
}

std::string draw_name() {
  return *rc::gen::element<std::string>("dapple", "terapipe", "gis", "hanayo", "chimera", "dualpipe", "dualpipev");
}

StepTimes uniform(const Program& program, const StageTimes& stage, Ticks latency) {
  StepTimes times;
  times.stages.assign(static_cast<std::size_t>(program.stage_count()), stage);
  times.boundaries.assign(times.stages.size() - 1, BoundaryTimes{latency, latency});
  return times;
}

TimelineMetrics run(const Program& program, const StageTimes& stage, Ticks latency = 0) {
  return measure(simulate(program, uniform(program, stage, latency)));
}

Ticks longest_idle(const TimelineMetrics& metrics) {
  Ticks idle = 0;
  for (const RankMetrics& rank : metrics.ranks) idle = std::max(idle, metrics.makespan - rank.busy);
  return idle;
}

// The limit that ScheduleInfo::peak_in_flight gives for a rank.
int most_in_flight(const std::string& name, const ScheduleRequest& request, int rank) {
  const int p = request.pipeline_ranks;
  const int m = request.microbatches;
  const int v = request.chunks;
  const int limit = request.memory_limit.value_or(m);
  if (name == "dapple") return std::min({m, limit, request.variant == "pb" ? 2 * (p - rank) - 1 : p - rank});
  if (name == "terapipe") return m * request.slices.value_or(4);
  if (name == "gis") return std::min(m * v, (v - 1) * request.group_size.value_or(p) + p - rank);
  if (name == "hanayo") return v * std::min(m, request.memory_limit.value_or(p));
  if (name == "dualpipe") return p + 1;
  if (name == "dualpipev") return 2 * p + 1;
  return request.variant == "doubling" ? 2 * p : p / 2 + 1 + std::min(rank, p - 1 - rank);
}

RC_GTEST_PROP(BidirectionalProperties, ProgramsAreValidAndKeepToTheirMemory, ()) {
  const std::string name = draw_name();
  const ScheduleRequest request = draw_request(name);
  const Program program = generate_schedule(*find_schedule(name), request);
  const auto fault = find_fault(program);
  RC_ASSERT(!fault.has_value());
  RC_ASSERT(program.microbatch_count() == request.microbatches);
  RC_ASSERT(program.stages_per_chain() == request.pipeline_ranks * request.chunks);
  const std::vector<int> peaks = peak_in_flight(program);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    RC_ASSERT(peaks[static_cast<std::size_t>(rank)] <= most_in_flight(name, request, rank));
  }
  RC_TAG(name);
}

RC_GTEST_PROP(BidirectionalProperties, EveryActionRunsAndWaitsForItsOwnChainOnly, ()) {
  const std::string name = draw_name();
  const Program program = generate_schedule(*find_schedule(name), draw_request(name));
  StepTimes times;
  for (int stage = 0; stage < program.stage_count(); ++stage) {
    StageTimes passes;
    passes.forward = between<Ticks>(1, 50);
    passes.input_gradient = between<Ticks>(1, 50);
    passes.weight_gradient = between<Ticks>(1, 50);
    passes.backward = passes.input_gradient + passes.weight_gradient;
    times.stages.push_back(passes);
    if (stage > 0) times.boundaries.push_back({between<Ticks>(0, 30), between<Ticks>(0, 30)});
  }
  const Timeline timeline = simulate(program, times);
  std::size_t spans = 0;
  std::vector<std::vector<Ticks>> forward_end(times.stages.size());
  for (const std::vector<Span>& of_rank : timeline.ranks) {
    spans += of_rank.size();
    for (const Span& span : of_rank) {
      if (span.kind != SpanKind::kForward) continue;
      std::vector<Ticks>& ends = forward_end[span.action.stage];
      ends.resize(std::max<std::size_t>(ends.size(), span.action.microbatch + 1));
      ends[span.action.microbatch] = span.end;
    }
  }
  RC_ASSERT(spans == program.action_count());
  for (const Chain& chain : program.chains) {
    for (std::size_t stage = static_cast<std::size_t>(chain.first_stage) + 1;
         stage <= static_cast<std::size_t>(chain.last_stage); ++stage) {
      const bool is_local = program.rank_of_stage[stage] == program.rank_of_stage[stage - 1];
      const Ticks latency = is_local ? 0 : times.boundaries[stage - 1].forward;
      for (std::size_t unit = 0; unit < forward_end[stage].size(); ++unit) {
        RC_ASSERT(forward_end[stage][unit] >= forward_end[stage - 1][unit] + latency + times.stages[stage].forward);
      }
    }
  }
  const TimelineMetrics metrics = measure(timeline);
  for (const RankMetrics& rank : metrics.ranks) {
    RC_ASSERT(rank.busy + rank.exposed() + rank.bubble() == metrics.makespan);
  }
}

RC_GTEST_PROP(BidirectionalProperties, SchedulesTakeWhatTheirClosedFormsSay, ()) {
  const std::string name = *rc::gen::element<std::string>("dapple", "terapipe", "chimera", "dualpipe", "dualpipev");
  const bool paired = name == "dualpipe" || name == "dualpipev";
  ScheduleRequest request = draw_request(name);
  if (name == "chimera")
    request.microbatches = request.pipeline_ranks * between(1, 5);  // multiples for which it has a closed form
  UniformTimes times{between<Ticks>(1, 50), between<Ticks>(1, 50), between<Ticks>(0, 40)};
  if (name == "chimera") times.latency = 0;
  if (name == "chimera" && between(0, 2) == 0) times.backward = times.forward;
  if (paired) times = {times.forward, 2 * times.forward, between<Ticks>(0, 4) == 0 ? times.latency : 0, times.forward};
  RC_PRE(!refuse_request(*find_schedule(name), request));
  const auto expected = find_schedule(name)->exact_makespan(request, times);
  if (paired) RC_ASSERT(expected.has_value() == (times.latency == 0));
  if (!expected) {
    RC_TAG("no closed form");
    return;
  }
  const Program program = generate_schedule(*find_schedule(name), request);
  const StageTimes stage{times.forward, times.backward, times.input_gradient(), times.weight_gradient, {}};
  RC_ASSERT(run(program, stage, times.latency).makespan == *expected);
  RC_TAG(name);
}

// deepseek-ai/DualPipe: a rank idles (PP/2 - 1)(F&B + B - 3W), where PP is the number of stages; for F = I = W.
RC_GTEST_PROP(BidirectionalProperties, DualPipeIdlesAsPublished, ()) {
  const bool folded = between(0, 2) == 0;
  const std::string name = folded ? "dualpipev" : "dualpipe";
  const ScheduleRequest request = draw_request(name);
  const Ticks part = between<Ticks>(1, 50);
  const Ticks pair = between<Ticks>(2 * part, 3 * part + 1);  // from all of F hidden to none of it
  const Program program = generate_schedule(*find_schedule(name), request);
  const TimelineMetrics metrics = run(program, StageTimes{part, 2 * part, part, part, pair});
  const Ticks steps = (folded ? request.pipeline_ranks : request.pipeline_ranks / 2) - 1;
  RC_ASSERT(longest_idle(metrics) == steps * (pair + 2 * part - 3 * part));
  RC_TAG(name);
}

// Published idle share: (p - 2) / (2m + p - 2) for F = B, (p - 2) / (3m/2 + p - 2) for B = 2F and m = p.
RC_GTEST_PROP(BidirectionalProperties, ChimeraIdlesAsPublished, ()) {
  ScheduleRequest request;
  request.pipeline_ranks = 2 * between(1, kLargestPipeline / 2 + 1);
  const bool equal = between(0, 2) == 0;
  request.microbatches = request.pipeline_ranks * (equal ? between(1, 5) : 1);
  const Ticks forward = between<Ticks>(1, 50);
  const Program program = generate_schedule(*find_schedule("chimera"), request);
  const TimelineMetrics metrics = run(program, StageTimes{forward, (equal ? 1 : 2) * forward, 0, 0, {}});
  const double p = request.pipeline_ranks;
  const double m = request.microbatches;
  const double published = (p - 2) / ((equal ? 2.0 : 1.5) * m + p - 2);
  RC_ASSERT(std::abs(metrics.idle_fraction() - published) < 1e-9);
}

// Doubling: the second of these shares for every multiple of 2p microbatches; concatenation is worse from m = 2p on.
RC_GTEST_PROP(BidirectionalProperties, ForwardDoublingRemovesTheBubblesBetweenUnits, ()) {
  ScheduleRequest request;
  request.pipeline_ranks = 2 * between(1, kLargestPipeline / 2 + 1);
  request.microbatches = 2 * request.pipeline_ranks * between(1, 5);
  request.variant = "doubling";
  const Ticks forward = between<Ticks>(1, 50);
  const StageTimes times{forward, 2 * forward, 0, 0, {}};
  const ScheduleInfo& chimera = *find_schedule("chimera");
  const Ticks doubled = run(generate_schedule(chimera, request), times).makespan;
  request.variant = "concatenation";
  const Ticks concatenated = run(generate_schedule(chimera, request), times).makespan;
  const Ticks p = request.pipeline_ranks;
  const Ticks published = (3 * request.microbatches + 2 * (p - 2)) * forward;
  // Below the published value because the next stage need not wait for both forwards of a pair.
  if (p <= 6) RC_ASSERT(doubled <= published);
  RC_ASSERT(doubled >= 3 * request.microbatches * forward + (p - 2) * forward);
  RC_ASSERT(doubled <= concatenated);
}

RC_GTEST_PROP(BidirectionalProperties, SmallerGroupsWaitLongerByTheStatedTime, ()) {
  const ScheduleRequest request = draw_request("gis");
  const Ticks part = between<Ticks>(1, 50);
  const Program program = generate_schedule(*find_schedule("gis"), request);
  const Ticks p = request.pipeline_ranks;
  const Ticks passes = Ticks{request.microbatches} * request.chunks;
  Ticks group = request.group_size.value_or(static_cast<int>((p + 1) / 2));
  while (request.microbatches % group != 0) ++group;
  const Ticks expected = 3 * passes + 2 * (p - 1) + (request.chunks - 1) * (p - group);
  RC_ASSERT(run(program, StageTimes{part, 2 * part, part, part, {}}).makespan == expected * part);
}

// Waves shorten the bubble: the paper's share for B = 2F and m = p is (2p - 2) / (3pW + p - 1).
TEST(Hanayo, IdlesAboutAsPublished) {
  int compared = 0;
  for (const int ranks : {2, 4, 8, 16, 32}) {
    for (const int waves : {1, 2, 4}) {
      ScheduleRequest request;
      request.pipeline_ranks = request.microbatches = ranks;
      request.chunks = 2 * waves;
      const Program program = generate_schedule(*find_schedule("hanayo"), request);
      const double idle = run(program, StageTimes{1, 2, 0, 0, {}}).idle_fraction();
      const double published = (2.0 * ranks - 2) / (3.0 * ranks * waves + ranks - 1);
      EXPECT_LE(idle, 1.02 * published) << ranks << " ranks, " << waves << " waves";
      EXPECT_GE(idle, 0.5 * published) << ranks << " ranks, " << waves << " waves";
      ++compared;
    }
  }
  EXPECT_EQ(compared, 15);
}

// Waves follow each other without a gap: only the first and the last leave ranks idle, with 1F1B's memory.
TEST(Hanayo, SteadyOrderIdlesOnceARun) {
  int compared = 0;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int waves : {1, 2, 3}) {
      for (const int rounds : {1, 2, 5}) {
        ScheduleRequest request;
        request.pipeline_ranks = ranks;
        request.microbatches = rounds * ranks;
        request.chunks = 2 * waves;
        const ScheduleInfo& info = *find_schedule("hanayo");
        const Program program = generate_schedule(info, request);
        const TimelineMetrics metrics = run(program, StageTimes{3, 3, 0, 0, {}});
        EXPECT_EQ(metrics.makespan, info.exact_makespan(request, {3, 3, 0})) << ranks << ' ' << waves << ' ' << rounds;
        const double idle = (ranks - 1.0) / (2.0 * waves * request.microbatches + ranks - 1.0);
        EXPECT_NEAR(metrics.idle_fraction(), idle, 1e-12);
        for (const int peak : peak_in_flight(program)) EXPECT_LE(peak, request.chunks * ranks);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 81);
}

// With twice 1F1B's microbatches in flight, the default stays below 1F1B with the same memory; rounds do not.
TEST(Hanayo, StaysBelowOneFOneBForTwoRounds) {
  for (const int ranks : {2, 4, 8, 16}) {
    ScheduleRequest request;
    request.pipeline_ranks = ranks;
    request.microbatches = 2 * ranks;
    const auto idle = [&](std::string_view name, const std::string& variant, int chunks) {
      request.variant = variant;
      request.chunks = chunks;
      return run(generate_schedule(*find_schedule(name), request), StageTimes{1, 2, 0, 0, {}}).idle_fraction();
    };
    EXPECT_LT(idle("hanayo", "", 2), idle("1f1b", "", 1)) << ranks;
    EXPECT_GT(idle("hanayo", "rounds", 2), idle("1f1b", "", 1)) << ranks;
  }
}

// With as many microbatches in flight as two rounds have, waves continue across the rounds.
TEST(Hanayo, FillsTheGapsBetweenRoundsWithTwiceTheMemory) {
  for (const int ranks : {4, 8, 16}) {
    for (const int rounds : {2, 4}) {
      ScheduleRequest request;
      request.pipeline_ranks = ranks;
      request.microbatches = rounds * ranks;
      request.chunks = 2;
      request.variant = "rounds";
      const auto idle = [&](std::string_view name) {
        return run(generate_schedule(*find_schedule(name), request), StageTimes{1, 2, 0, 0, {}}).idle_fraction();
      };
      const double gaps = idle("hanayo");
      request.memory_limit = 2 * ranks;
      const double filled = idle("hanayo");
      request.memory_limit.reset();
      request.chunks = 1;
      request.variant = "";
      EXPECT_LT(filled, idle("1f1b")) << ranks << " ranks, " << rounds << " rounds";
      EXPECT_LT(filled, 0.75 * gaps) << ranks << " ranks, " << rounds << " rounds";
    }
  }
}

}  // namespace
}  // namespace flopcast
