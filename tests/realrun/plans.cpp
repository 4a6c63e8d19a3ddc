#include "tests/realrun/plans.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace flopcast::realrun {

NetworkSpec tiny_transformer(int blocks) {
  NetworkSpec network;
  network.blocks = blocks;
  network.hidden = 8;
  network.heads = 4;
  network.ffn = 16;
  network.vocab = 12;
  network.sequence = 4;
  network.seed = 7;
  return network;
}

TrainingPlan plan_for(const NetworkSpec& network, const ScheduleInfo& info, const ScheduleRequest& request) {
  TrainingPlan plan;
  plan.network = network;
  plan.program = generate_schedule(info, request);
  const Chain& chain = plan.program.chains.front();
  plan.stage_blocks = even_stage_layers(network.blocks, chain.last_stage - chain.first_stage + 1);
  if (info.asynchronous) {
    plan.updates = {info.weight_policy(request), info.weights.accumulation(request)};
  }
  plan.micro_batch_size = 2;
  plan.steps = 3;
  plan.optimizer.kind = Optimizer::kSgd;
  plan.optimizer.rate = 0.05F;
  return plan;
}

TrainingPlan serial_plan(const TrainingPlan& plan) {
  ScheduleRequest request;
  request.microbatches = plan.microbatches() * plan.dp;
  TrainingPlan serial = plan;
  serial.program = generate_schedule(*find_schedule("gpipe"), request);
  serial.updates = {};
  serial.stage_blocks = {plan.network.blocks};
  serial.dp = 1;
  serial.tp = 1;
  serial.sequence_parallel = false;
  serial.zero = 0;
  serial.shards = 0;
  serial.served_ranks_per_node = 0;
  serial.servers = 0;
  serial.network.recompute = {};
  serial.offload = Offload::kNone;
  return serial;
}

namespace {

// Puts one rank's part into its place; every element written twice must be written equal.
void place(const TrainedParameter& part, std::vector<float>& whole, std::vector<bool>& known) {
  const Shard& shard = part.parameter.shard;
  whole.resize(shard.whole_rows * shard.whole_columns);
  known.resize(whole.size());
  for (std::size_t row = 0; row < shard.rows; ++row) {
    for (std::size_t column = 0; column < shard.columns; ++column) {
      const std::size_t index = (shard.first_row + row) * shard.whole_columns + shard.first_column + column;
      const float value = part.values[row * shard.columns + column];
      if (known[index] && whole[index] != value) {
        ADD_FAILURE() << part.parameter.name << ": copies differ, " << whole[index] << " and " << value;
        return;
      }
      whole[index] = value;
      known[index] = true;
    }
  }
}

}  // namespace

std::map<std::string, std::vector<float>> whole_weights(const std::vector<RankResult>& ranks) {
  std::map<std::string, std::vector<float>> weights;
  std::map<std::string, std::vector<bool>> known;
  for (const RankResult& rank : ranks) {
    for (const TrainedParameter& part : rank.weights) {
      place(part, weights[part.parameter.name], known[part.parameter.name]);
    }
  }
  for (const auto& [name, elements] : known) {
    EXPECT_EQ(std::count(elements.begin(), elements.end(), false), 0) << name << " is incomplete";
  }
  return weights;
}

namespace {

void expect_same_weights(const std::map<std::string, std::vector<float>>& expected,
                         const std::map<std::string, std::vector<float>>& actual, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : actual) {
    const std::vector<float>& reference = expected.at(name);
    ASSERT_EQ(values.size(), reference.size()) << what << ", " << name;
    float largest = kTypicalWeight;
    float error = 0;
    for (std::size_t index = 0; index < values.size(); ++index) {
      largest = std::max(largest, std::abs(reference[index]));
      error = std::max(error, std::abs(values[index] - reference[index]));
    }
    EXPECT_LE(error, kRounding * largest) << what << ", " << name;
  }
}

}  // namespace

void expect_same_training(const std::vector<RankResult>& expected, const std::vector<RankResult>& actual,
                          const std::string& what) {
  const std::vector<double> losses = mean_losses(actual);
  const std::vector<double> expected_losses = mean_losses(expected);
  ASSERT_EQ(losses.size(), expected_losses.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], expected_losses[step], 1e-5 * expected_losses[step]) << what << ", step " << step;
  }
  expect_same_weights(whole_weights(expected), whole_weights(actual), what);
}

void expect_delayed_training(const DelayedReference& expected, const std::vector<RankResult>& actual,
                             const std::string& what) {
  EXPECT_NEAR(mean_losses(actual).front(), expected.mean_loss, 1e-5 * expected.mean_loss) << what;
  expect_same_weights(expected.weights, whole_weights(actual), what);
}

}  // namespace flopcast::realrun
