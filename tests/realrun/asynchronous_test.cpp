// Schedules without a flush against serial training with the delays that the papers define.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/text/error.hpp"
#include "tests/realrun/delayed_gradients.hpp"
#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

TrainingPlan asynchronous_plan(const char* schedule, int pipeline_ranks, int microbatches,
                               std::optional<int> accumulation) {
  ScheduleRequest request;
  request.pipeline_ranks = pipeline_ranks;
  request.microbatches = microbatches;
  request.accumulation = accumulation;
  TrainingPlan plan = plan_for(tiny_transformer(4), *find_schedule(schedule), request);
  plan.steps = 1;
  plan.optimizer.rate = 0.2F;
  plan.optimizer.momentum = 0.5F;
  return plan;
}

TEST(AsynchronousRun, PipeDreamAppliesTheGradientsOfItsStashedWeights) {
  for (const int pipeline_ranks : {1, 2, 3, 4}) {
    for (const int dp : {1, 2}) {
      TrainingPlan plan = asynchronous_plan("pipedream", pipeline_ranks, 11, std::nullopt);
      plan.dp = dp;
      plan.zero = dp - 1;
      expect_delayed_training(train_with_delays(plan), train_on_threads(plan, {}),
                              fmt::format("pipedream p={} dp={}", pipeline_ranks, dp));
    }
  }
}

TEST(AsynchronousRun, PipeDreamWithVerticalSyncTakesTheFirstStagesVersion) {
  const int pipeline_ranks = 3;
  TrainingPlan plan = asynchronous_plan("pipedream", pipeline_ranks, 9, std::nullopt);
  plan.updates.policy = WeightPolicy::kVerticalSync;
  expect_delayed_training(train_with_delays(plan), train_on_threads(plan, {}), "vertical sync");
}

TEST(AsynchronousRun, DoubleBufferedUpdatesLagByOne) {
  for (const int pipeline_ranks : {1, 2, 4}) {
    for (const int dp : {1, 2}) {
      const int accumulation = std::max(2, pipeline_ranks);
      TrainingPlan plan = asynchronous_plan("pipedream-2bw", pipeline_ranks, 5 * accumulation, accumulation);
      plan.dp = dp;
      expect_delayed_training(train_with_delays(plan), train_on_threads(plan, {}),
                              fmt::format("2bw p={} dp={}", pipeline_ranks, dp));
    }
  }
}

// The delays matter: without them the weights would be visibly different.
TEST(AsynchronousRun, DelayedGradientsAreNotThoseOfOneRank) {
  const TrainingPlan plan = asynchronous_plan("pipedream", 4, 11, std::nullopt);
  const double delayed = mean_losses(train_on_threads(plan, {})).front();
  EXPECT_GT(std::abs(delayed - train_without_delays(plan).mean_loss), 1e-3);
}

TEST(AsynchronousRun, RefusesWhatHasNoMeaning) {
  TrainingPlan tied = asynchronous_plan("pipedream", 2, 4, std::nullopt);
  tied.network.tied_embeddings = true;
  EXPECT_THROW(train_on_threads(tied, {}), ConfigError);
  TrainingPlan cut = asynchronous_plan("pipedream-2bw", 2, 4, 2);
  cut.dp = 2;
  cut.zero = 2;
  EXPECT_THROW(train_on_threads(cut, {}), ConfigError);
  const TrainingPlan unfinished = asynchronous_plan("pipedream-2bw", 2, 5, 2);
  EXPECT_THROW(train_on_threads(unfinished, {}), ConfigError);
}

}  // namespace
}  // namespace flopcast::realrun
