// Compute that only takes its time. Only lower bounds are certain on a busy machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/device.hpp"
#include "realrun/training/train.hpp"
#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

constexpr Ticks kMillisecond = 1'000'000'000;

TEST(Pace, ActionsTakeTheirTimeAndLatenessIsMadeUp) {
  Pace pace([] {});
  const Ticks start = host_clock();
  constexpr int kActions = 20;
  for (int action = 0; action < kActions; ++action) {
    pace.begin();
    pace.work(kMillisecond / 2);
    pace.work(kMillisecond / 2);
    pace.end();
    EXPECT_GE(host_clock() - start, (action + 1) * kMillisecond);
  }
}

TEST(Pace, WhatIsPausedTakesItsOwnTime) {
  Pace pace([] {});
  const Ticks start = host_clock();
  pace.begin();
  pace.pause();
  const Ticks paused = host_clock();
  while (host_clock() - paused < 2 * kMillisecond) {
  }
  pace.resume();
  pace.work(3 * kMillisecond);
  pace.end();
  EXPECT_GE(host_clock() - start, 5 * kMillisecond);
}

TrainingPlan plan_of(const char* schedule, int dp, bool sleeps) {
  ScheduleRequest request;
  request.pipeline_ranks = 2;
  request.microbatches = 4;
  TrainingPlan plan = plan_for(tiny_transformer(4), *find_schedule(schedule), request);
  plan.dp = dp;
  plan.steps = 2;
  if (sleeps) {
    StageTimes times;
    times.forward = kMillisecond;
    times.backward = 2 * kMillisecond;
    times.input_gradient = times.weight_gradient = kMillisecond;
    plan.sleep.assign(static_cast<std::size_t>(plan.program.stage_count()), times);
  }
  return plan;
}

TEST(SleepingStages, ActionsLastAsLongAsTold) {
  const std::vector<RankResult> ranks = train_on_threads(plan_of("1f1b", 1, true), {});
  const Timeline timeline = timeline_of(ranks, 1);
  // 1F1B with F = 1, B = 2: (m + p - 1)(F + B), less the delay of a first action that later ones have made up for.
  EXPECT_GE(timeline.makespan(), 14 * kMillisecond);
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (span.kind != SpanKind::kBackward) continue;
      EXPECT_GE(span.end - span.start, kMillisecond) << "after making up for a delay";
    }
  }
}

// Both halves have ended when the result of either is sent.
TEST(SleepingStages, PairsHandOnTogether) {
  ScheduleRequest request;
  request.pipeline_ranks = 2;
  request.microbatches = 6;
  request.chunks = 2;
  TrainingPlan plan = plan_for(tiny_transformer(4), *find_schedule("dualpipev"), request);
  plan.steps = 1;
  StageTimes times;
  times.forward = times.backward = times.input_gradient = times.weight_gradient = kMillisecond;
  plan.sleep.assign(static_cast<std::size_t>(plan.program.stage_count()), times);
  const Timeline timeline = timeline_of(train_on_threads(plan, {}), 0);
  int sent = 0;
  for (std::size_t rank = 0; rank < plan.program.ranks.size(); ++rank) {
    const std::vector<Action>& actions = plan.program.ranks[rank];
    for (std::size_t index = 0; index + 1 < actions.size(); ++index) {
      if (!actions[index].overlaps_next) continue;
      Action first = actions[index];
      first.overlaps_next = false;
      const auto is_second = [&](const Span& span) {
        return is_action(span.kind) && span.action == actions[index + 1];
      };
      const std::vector<Span>& spans = timeline.ranks[rank];
      const auto second = std::find_if(spans.begin(), spans.end(), is_second);
      ASSERT_NE(second, spans.end());
      for (const Transfer& transfer : timeline.transfers) {
        if (!(transfer.produced_by == first)) continue;
        ++sent;
        EXPECT_GE(transfer.start, second->end) << to_string(actions[index]);
      }
    }
  }
  EXPECT_GT(sent, 0);
}

TEST(SleepingStages, CommunicateAsIfTheyComputed) {
  for (const char* schedule : {"gpipe", "pipedream-2bw"}) {
    for (const int zero : {0, 1}) {
      TrainingPlan computing = plan_of(schedule, 2, false);
      TrainingPlan sleeping = plan_of(schedule, 2, true);
      computing.zero = sleeping.zero = zero;
      const std::vector<RankResult> expected = train_on_threads(computing, {});
      const std::vector<RankResult> ranks = train_on_threads(sleeping, {});
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const SentTraffic& sent = ranks[rank].steps[0].traffic;
        const SentTraffic& as_computed = expected[rank].steps[0].traffic;
        EXPECT_GT(sent.point_to_point.bytes, 0U);
        EXPECT_EQ(sent.point_to_point.bytes, as_computed.point_to_point.bytes) << schedule;
        EXPECT_EQ(sent.point_to_point.messages, as_computed.point_to_point.messages) << schedule;
        EXPECT_GT(sent.bytes_of(Axis::kData), 0U);
        EXPECT_EQ(sent.bytes_of(Axis::kData), as_computed.bytes_of(Axis::kData)) << schedule << ", ZeRO " << zero;
      }
    }
  }
}

TEST(Calibration, SeesEveryActionAndMessageAndLeavesTheTrainingAlone) {
  TrainingPlan plan = plan_of("interleaved", 1, false);
  ScheduleRequest request;
  request.pipeline_ranks = 2;
  request.microbatches = 4;
  request.chunks = 2;
  plan.program = generate_schedule(*find_schedule("interleaved"), request);
  plan.stage_blocks = {1, 1, 1, 1};
  const std::vector<RankResult> expected = train_on_threads(plan, {});
  plan.calibration = CalibrationPlan{plan.program, 2};
  const std::vector<RankResult> ranks = train_on_threads(plan, {});
  expect_same_training(expected, ranks, "after a calibration");
  std::size_t messages = 0;
  for (const RankResult& rank : ranks) {
    ASSERT_EQ(rank.calibration.steps.size(), 2U);
    ASSERT_EQ(rank.calibration.later_steps.size(), 2U);
    messages += rank.calibration.messages.size();
    for (const MessageTimes& times : rank.calibration.messages) {
      EXPECT_FALSE(times.one_way.empty());
      EXPECT_EQ(times.receive.size(), times.one_way.size());
      for (const Ticks time : times.one_way) EXPECT_GT(time, 0);
    }
  }
  EXPECT_EQ(messages, 2U * 3U) << "three boundaries, both ways";
  for (const auto steps : {&RankCalibration::steps, &RankCalibration::later_steps}) {
    const Timeline timeline = calibration_of(ranks, steps, 1);
    EXPECT_TRUE(timeline.transfers.empty());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      std::vector<Action> executed;
      for (const Span& span : timeline.ranks[rank]) {
        if (is_action(span.kind)) executed.push_back(span.action);
      }
      EXPECT_EQ(executed, plan.program.ranks[rank]);
    }
  }
}

TEST(Calibration, CoversEveryLayoutWithoutWaitingForNeighbours) {
  for (const char* schedule : {"naive", "gpipe", "1f1b", "pipedream", "pipedream-2bw"}) {
    for (const int zero : {0, 1}) {
      TrainingPlan plan = plan_of(schedule, 2, false);
      plan.zero = zero;
      plan.tp = 2;
      plan.calibration = CalibrationPlan{plan.program, 1};
      const std::vector<RankResult> ranks = train_on_threads(plan, {});
      for (const RankResult& rank : ranks) EXPECT_EQ(rank.calibration.steps.size(), 1U) << schedule;
    }
  }
}

}  // namespace
}  // namespace flopcast::realrun
