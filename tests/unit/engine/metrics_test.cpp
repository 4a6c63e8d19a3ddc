#include "sim/metrics/metrics.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/lower/lower.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

StepTimes even_times(const Program& program, Ticks latency) {
  StepTimes times;
  times.stages.assign(program.rank_of_stage.size(), StageTimes{10, 20, 12, 8, {}});
  times.boundaries.assign(program.rank_of_stage.size() - 1, BoundaryTimes{latency, latency});
  return times;
}

Ticks cause(const RankMetrics& rank, BubbleCause wanted) {
  return rank.bubble_by_cause[static_cast<std::size_t>(wanted)];
}

// Rank 0: F 0-10, F 10-20, idle, B 46-66, idle, B 76-96. Rank 1: idle, F 13-23, B 23-43, F 43-53, B 53-73.
TEST(Metrics, WaitingForATransferUnderWayIsExposedAndTheRestIsBubble) {
  const Program program = parse_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "test.csv", {});
  const TimelineMetrics metrics = measure(simulate(program, even_times(program, 3)));
  ASSERT_EQ(metrics.makespan, 96);
  const RankMetrics& first = metrics.ranks[0];
  EXPECT_EQ(first.busy, 60);
  EXPECT_EQ(first.exposed_pipeline, 6);                // 43-46 and 73-76
  EXPECT_EQ(cause(first, BubbleCause::kWarmup), 23);   // 20-43
  EXPECT_EQ(cause(first, BubbleCause::kCooldown), 7);  // 66-73
  const RankMetrics& second = metrics.ranks[1];
  EXPECT_EQ(second.busy, 60);
  EXPECT_EQ(second.exposed_pipeline, 3);                 // 10-13
  EXPECT_EQ(cause(second, BubbleCause::kWarmup), 10);    // 0-10
  EXPECT_EQ(cause(second, BubbleCause::kCooldown), 23);  // 73-96
  EXPECT_EQ(second.first_start, 13);
  EXPECT_EQ(second.last_end, 73);
  EXPECT_EQ(second.span(), 60);
  EXPECT_EQ(first.peak_in_flight, 2);
  EXPECT_EQ(second.peak_in_flight, 1);
  EXPECT_DOUBLE_EQ(metrics.idle_fraction(), 72.0 / 192.0);
  EXPECT_DOUBLE_EQ(metrics.bubble_fraction(), 63.0 / 192.0);
  EXPECT_DOUBLE_EQ(metrics.bubble_ratio(), 36.0 / 60.0);
}

// The slow second stage makes the first one wait in the middle: imbalance, to the extent that it computes less.
TEST(Metrics, ARankThatComputesLessThanTheBusiestWaitsForImbalance) {
  const Program program = parse_csv("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n", "t.csv", {});
  StepTimes times = even_times(program, 0);
  times.stages[1] = StageTimes{20, 40, 0, 0, {}};
  const TimelineMetrics metrics = measure(simulate(program, times));
  const RankMetrics& first = metrics.ranks[0];
  // Rank 1 runs 10-250 without a pause. Rank 0: 0-20, B 70-90, F 90-100, B 130-150, F 150-160, B 190-210, B 250-270.
  ASSERT_EQ(metrics.makespan, 270);
  EXPECT_EQ(first.busy, 120);
  EXPECT_EQ(cause(first, BubbleCause::kWarmup), 50);
  EXPECT_EQ(cause(first, BubbleCause::kCooldown), 70);  // 160-190, 210-250
  EXPECT_EQ(cause(first, BubbleCause::kImbalance), 30);
  EXPECT_EQ(cause(first, BubbleCause::kDependency), 0);
}

TEST(Metrics, WaitingOfEquallyBusyRanksIsDependency) {
  const Program program = parse_csv("0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n", "test.csv", {});
  const TimelineMetrics metrics = measure(simulate(program, even_times(program, 0)));
  EXPECT_EQ(cause(metrics.ranks[1], BubbleCause::kWarmup), 10);
  EXPECT_EQ(cause(metrics.ranks[1], BubbleCause::kDependency), 30);
  EXPECT_EQ(cause(metrics.ranks[1], BubbleCause::kImbalance), 0);
  EXPECT_EQ(cause(metrics.ranks[1], BubbleCause::kCooldown), 20);
}

TEST(Metrics, ABlockingSendIsExposedCommunicationOfItsSender) {
  const Program program = parse_csv("0F0,0B0\n1F0,1B0\n", "test.csv", {});
  StepTimes times = even_times(program, 4);
  times.blocking_sends = true;
  const TimelineMetrics metrics = measure(simulate(program, times));
  EXPECT_EQ(metrics.makespan, 68);
  EXPECT_EQ(metrics.ranks[0].exposed_pipeline, 8);  // its own send 10-14, and 1B0's gradient in transit 44-48
  EXPECT_EQ(metrics.ranks[1].exposed_pipeline, 8);  // 0F0's send 10-14 and its own 44-48
  EXPECT_EQ(metrics.ranks[1].bubble(), 30);
}

TEST(Metrics, ReductionsThatNoComputeCoversAreExposed) {
  const Program program = parse_csv("0F0,0B0\n1F0,1B0\n", "test.csv", {});
  StepTimes times = even_times(program, 0);
  times.flush = {FlushTimes{7, 4, 2, 5, 6}, FlushTimes{30, 4, 2, 5, 6}};  // the same spans as in the lowering test
  const TimelineMetrics metrics = measure(simulate(program, times));
  EXPECT_EQ(metrics.ranks[0].busy, 35);
  EXPECT_EQ(metrics.ranks[0].exposed_data_parallel, 7 + 4 + 2 + 6);
  EXPECT_EQ(metrics.ranks[0].bubble(), 33);  // 10-40 for the second rank, 67-70 for its reduction
  EXPECT_EQ(metrics.ranks[1].exposed_data_parallel, 30 + 4 + 2 + 6);
  EXPECT_EQ(metrics.ranks[1].bubble(), 10);
  EXPECT_EQ(metrics.ranks[1].time_by_kind[static_cast<std::size_t>(SpanKind::kGradientReduction)], 30);
}

TEST(Memory, RisesAtForwardsAndFallsAtTheEndOfBackwards) {
  const Program program = parse_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "test.csv", {});
  const RankMemory memory = memory_over_time(simulate(program, even_times(program, 3)), 0, 100.0, {8.0, 1.0});
  const std::vector<std::pair<Ticks, double>> expected = {{0, 108.0}, {10, 116.0}, {66, 108.0}, {96, 100.0}};
  ASSERT_EQ(memory.points.size(), expected.size());
  for (std::size_t index = 0; index < expected.size(); ++index) {
    EXPECT_EQ(memory.points[index].time, expected[index].first);
    EXPECT_EQ(memory.points[index].bytes, expected[index].second);
  }
  EXPECT_EQ(memory.peak_bytes, 116.0);
}

TEST(Memory, InputGradientsLeaveOnlyWhatWeightGradientsNeed) {
  Timeline timeline;
  const auto span = [](ActionKind kind, SpanKind shown, Ticks start) {
    Span done;
    done.action.kind = kind;
    done.kind = shown;
    done.start = start;
    done.end = start + 10;
    return done;
  };
  timeline.ranks = {{span(ActionKind::kForward, SpanKind::kForward, 0),
                     span(ActionKind::kInputGradient, SpanKind::kInputGradient, 20),
                     span(ActionKind::kWeightGradient, SpanKind::kWeightGradient, 40)}};
  const std::vector<HeldBytes> less = {{8.0, 3.0}};
  const RankMemory memory = memory_over_time(timeline, 0, 1.0, less);
  ASSERT_EQ(memory.points.size(), 3U);
  EXPECT_EQ(memory.points[0].bytes, 9.0);
  EXPECT_EQ(memory.points[1].time, 30);
  EXPECT_EQ(memory.points[1].bytes, 4.0);
  EXPECT_EQ(memory.points[2].time, 50);
  EXPECT_EQ(memory.points[2].bytes, 1.0);
  EXPECT_EQ(memory.peak_bytes, 9.0);
  const std::vector<HeldBytes> more = {{8.0, 11.0}};
  EXPECT_EQ(memory_over_time(timeline, 0, 1.0, more).peak_bytes, 12.0);
}

TEST(CriticalPathTest, FollowsTheFirstMicrobatchDownAndTheLastOneBack) {
  const Program program = parse_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "test.csv", {});
  const CriticalPath path = critical_path(simulate(program, even_times(program, 3)));
  std::vector<std::string> actions;
  for (const CriticalStep& step : path.steps) actions.push_back(to_string(step.span.action));
  EXPECT_EQ(actions, (std::vector<std::string>{"0F0", "1F0", "1B0", "1F1", "1B1", "0B1"}));
  EXPECT_EQ(path.lag, 6);
  EXPECT_EQ(path.wait, 0);
  EXPECT_EQ(path.total(), 96);
  EXPECT_EQ(path.steps[0].lag, 3);
  EXPECT_EQ(path.time_by_kind[static_cast<std::size_t>(SpanKind::kBackward)], 60);
}

TEST(CriticalPathTest, PassesThroughTheSlowestReductionIntoTheOptimizer) {
  const Program program = parse_csv("0F0,0B0\n1F0,1B0\n", "test.csv", {});
  StepTimes times = even_times(program, 0);
  times.flush = {FlushTimes{7, 4, 2, 5, 6}, FlushTimes{30, 4, 2, 5, 6}};
  const CriticalPath path = critical_path(simulate(program, times));
  EXPECT_EQ(path.total(), 87);
  EXPECT_EQ(path.wait, 0);
  EXPECT_EQ(path.time_by_kind[static_cast<std::size_t>(SpanKind::kGradientReduction)], 30);
}

TEST(CriticalPathTest, LeavesAPassWhereTheReductionBesideItBegins) {
  const Program program = parse_csv("0F0,0B0\n", "test.csv", {});
  StepTimes times = even_times(program, 0);
  times.flush = {FlushTimes{0, 0, 2, 5, 0}};
  times.overlapped_reductions = {{OverlappedReduction{0, 15, 40}}};
  const CriticalPath path = critical_path(simulate(program, times));
  EXPECT_EQ(path.total(), 10 + 5 + 40 + 2 + 5);  // the last 15 of the backward pass overlap with the reduction
  EXPECT_EQ(path.wait, 0);
  EXPECT_EQ(path.lag, 0);
  EXPECT_EQ(path.time_by_kind[static_cast<std::size_t>(SpanKind::kBackward)], 5);
  times.overlapped_reductions = {{OverlappedReduction{0, 15, 10}}};
  EXPECT_EQ(critical_path(simulate(program, times)).time_by_kind[static_cast<std::size_t>(SpanKind::kBackward)], 20);
}

TEST(CriticalPathTest, AReductionThatTakesNoTimeComesBeforeTheOptimizer) {
  const Program program = parse_csv("0F0,0B0\n", "test.csv", {});
  StepTimes times = even_times(program, 0);
  times.flush = {FlushTimes{0, 0, 0, 5, 3}};
  times.overlapped_reductions = {{OverlappedReduction{0, 0, 0}}};
  const Timeline timeline = simulate(program, times);
  std::vector<SpanKind> kinds;
  for (const Span& span : timeline.ranks[0]) kinds.push_back(span.kind);
  EXPECT_EQ(kinds, (std::vector<SpanKind>{SpanKind::kForward, SpanKind::kBackward, SpanKind::kGradientReduction,
                                          SpanKind::kOptimizer, SpanKind::kParameterGather}));
  const CriticalPath path = critical_path(timeline);
  EXPECT_EQ(path.total(), timeline.makespan());
  for (const CriticalStep& step : path.steps) EXPECT_EQ(step.wait, 0);
}

TEST(CriticalPathTest, WhatAMeasuredTimelineCannotExplainIsWait) {
  Timeline measured;
  measured.ranks.resize(1);
  measured.ranks[0].push_back(Span{5, 15, parse_action("0F0").value(), SpanKind::kForward, StreamKind::kCompute});
  measured.ranks[0].push_back(Span{18, 40, parse_action("0B0").value(), SpanKind::kBackward, StreamKind::kCompute});
  const CriticalPath path = critical_path(measured);
  ASSERT_EQ(path.steps.size(), 2U);
  EXPECT_EQ(path.steps[0].wait, 5);
  EXPECT_EQ(path.steps[1].wait, 3);
  EXPECT_EQ(path.total(), 40);
}

TEST(CriticalPathTest, OfAnEmptyTimelineIsEmpty) {
  EXPECT_TRUE(critical_path(Timeline{}).steps.empty());
}

Program one_forward_one_backward(int ranks, int microbatches) {
  ScheduleRequest request;
  request.pipeline_ranks = ranks;
  request.microbatches = microbatches;
  return generate_schedule(*find_schedule("1f1b"), request);
}

// F + B + 2c (p - 1) / p per microbatch.
TEST(SteadyStateTest, OneForwardOneBackwardWithLatencyHasAFractionalPeriod) {
  const Program one = one_forward_one_backward(3, 1);
  const SteadyState steady =
      steady_state([](int microbatches) { return one_forward_one_backward(3, microbatches); }, even_times(one, 5));
  EXPECT_TRUE(steady.periodic);
  EXPECT_EQ(steady.window_microbatches % 3, 0);
  EXPECT_DOUBLE_EQ(steady.period_ticks(), 30.0 + 10.0 * 2.0 / 3.0);
  EXPECT_NEAR(steady.idle_fraction, 1.0 - 30.0 / steady.period_ticks(), 1e-12);
}

TEST(SteadyStateTest, TheSlowestStageSetsThePace) {
  StepTimes times = even_times(one_forward_one_backward(4, 1), 0);
  times.stages[2] = StageTimes{17, 40, 0, 0, {}};
  const SteadyState steady =
      steady_state([](int microbatches) { return one_forward_one_backward(4, microbatches); }, times);
  EXPECT_TRUE(steady.periodic);
  EXPECT_DOUBLE_EQ(steady.period_ticks(), 57.0);
}

}  // namespace
}  // namespace flopcast
