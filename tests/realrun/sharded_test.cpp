// Layouts that shard states, layers or both train as one rank does, and so do programs that no generator makes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

TrainingPlan one_forward_one_backward(int pipeline_ranks, int microbatches) {
  ScheduleRequest request;
  request.pipeline_ranks = pipeline_ranks;
  request.microbatches = microbatches;
  return plan_for(tiny_transformer(), *find_schedule("1f1b"), request);
}

void expect_equal_to_one_rank(const TrainingPlan& plan, const std::string& what) {
  expect_same_training(train_on_threads(serial_plan(plan), {}), train_on_threads(plan, {}), what);
}

TEST(ShardedRun, EveryZeroLevelOverPipelinesAndReplicas) {
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdam}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int pipeline_ranks : {1, 2}) {
        for (const int dp : {2, 3}) {
          TrainingPlan plan = one_forward_one_backward(pipeline_ranks, 4);
          plan.dp = dp;
          plan.zero = zero;
          plan.optimizer.kind = optimizer;
          plan.optimizer.epsilon = 1e-3F;  // far above the noise of gradients near zero, which Adam would amplify
          plan.optimizer.rate = 0.02F;
          plan.bucket_bytes = 800;
          plan.network.tied_embeddings = true;
          expect_equal_to_one_rank(plan, fmt::format("zero={} pp={} dp={}", zero, pipeline_ranks, dp));
        }
      }
    }
  }
}

TEST(ShardedRun, TensorParallelLayers) {
  for (const bool sequence_parallel : {false, true}) {
    for (const bool tied : {false, true}) {
      for (const int tp : {2, 4}) {
        for (const int pipeline_ranks : {1, 2}) {
          TrainingPlan plan = one_forward_one_backward(pipeline_ranks, 3);
          plan.tp = tp;
          plan.sequence_parallel = sequence_parallel;
          plan.network.tied_embeddings = tied;
          expect_equal_to_one_rank(
              plan, fmt::format("tp={} pp={} sp={} tied={}", tp, pipeline_ranks, sequence_parallel, tied));
        }
      }
    }
  }
}

TEST(ShardedRun, ReplicasOfTensorParallelPipelines) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool sequence_parallel : {false, true}) {
      TrainingPlan plan = one_forward_one_backward(2, 4);
      plan.dp = 2;
      plan.tp = 2;
      plan.zero = zero;
      plan.sequence_parallel = sequence_parallel;
      plan.network.tied_embeddings = true;
      expect_equal_to_one_rank(plan, fmt::format("dp=2 tp=2 pp=2 zero={} sp={}", zero, sequence_parallel));
    }
  }
}

TEST(ShardedRun, UnevenStages) {
  TrainingPlan plan = one_forward_one_backward(4, 5);
  plan.stage_blocks = {1, 4, 0, 3};
  expect_equal_to_one_rank(plan, "uneven");
}

// Splits each B into an I and a W that runs `delay` cells later.
void split_backwards(Program& program, std::size_t delay) {
  for (std::vector<Action>& actions : program.ranks) {
    std::vector<Action> split;
    std::vector<Action> held;
    for (Action action : actions) {
      if (action.kind == ActionKind::kBackward) {
        action.kind = ActionKind::kInputGradient;
        held.push_back(action);
        held.back().kind = ActionKind::kWeightGradient;
      }
      split.push_back(action);
      if (held.size() > delay) {
        split.push_back(held.front());
        held.erase(held.begin());
      }
    }
    split.insert(split.end(), held.begin(), held.end());
    actions = split;
  }
}

TEST(ShardedRun, BackwardPassesThatAreSplit) {
  for (const std::size_t delay : {0U, 1U, 3U, 100U}) {
    for (const int zero : {0, 2, 3}) {
      TrainingPlan plan = one_forward_one_backward(2, 5);
      split_backwards(plan.program, delay);
      plan.dp = 2;
      plan.zero = zero;
      plan.bucket_bytes = 600;
      expect_equal_to_one_rank(plan, fmt::format("split, delay={} zero={}", delay, zero));
    }
  }
}

// Stages 0 and 1 run down the ranks, 2 and 3 are a second copy of the model that runs up; with overlapped pairs.
Program two_chains() {
  Program program;
  program.schedule = "two chains";
  program.rank_of_stage = {0, 1, 1, 0};
  program.chains = {{0, 1}, {2, 3}};
  const auto cell = [](int stage, ActionKind kind, std::uint32_t microbatch, bool overlaps = false) {
    return Action{microbatch, static_cast<std::uint16_t>(stage), kind, overlaps};
  };
  constexpr ActionKind F = ActionKind::kForward;
  constexpr ActionKind B = ActionKind::kBackward;
  constexpr ActionKind I = ActionKind::kInputGradient;
  constexpr ActionKind W = ActionKind::kWeightGradient;
  program.ranks = {
      {cell(0, F, 0), cell(0, F, 1), cell(3, F, 0), cell(3, B, 0), cell(3, F, 1, true), cell(0, B, 0), cell(3, I, 1),
       cell(0, I, 1), cell(3, W, 1), cell(0, W, 1)},
      {cell(2, F, 0), cell(2, F, 1), cell(1, F, 0), cell(1, B, 0), cell(1, F, 1, true), cell(2, B, 0), cell(1, I, 1),
       cell(2, I, 1), cell(1, W, 1), cell(2, W, 1)},
  };
  return program;
}

TEST(ShardedRun, TwoCopiesOfTheModelInOppositeDirections) {
  for (const int zero : {0, 1, 3}) {
    for (const bool tied : {false, true}) {
      TrainingPlan plan = one_forward_one_backward(2, 4);
      plan.program = two_chains();
      plan.dp = 2;
      plan.zero = zero;
      plan.network.tied_embeddings = tied;
      plan.bucket_bytes = 600;
      EXPECT_EQ(plan.microbatches(), 4);
      expect_equal_to_one_rank(plan, fmt::format("two chains, zero={} tied={}", zero, tied));
    }
  }
}

TEST(ShardedRun, LearnsTheText) {
  TrainingPlan plan = one_forward_one_backward(2, 4);
  plan.dp = 2;
  plan.steps = 60;
  plan.micro_batch_size = 4;
  plan.network.layers = 2;
  plan.stage_blocks = {1, 1};
  plan.optimizer = {.kind = Optimizer::kAdam, .rate = 0.02F};
  const std::vector<double> losses = mean_losses(train_on_threads(plan, {}));
  EXPECT_GT(losses.front(), 2.0) << "the logarithm of 12 tokens is 2.48";
  EXPECT_LT(losses.back(), 1.2);
}

}  // namespace
}  // namespace flopcast::realrun
