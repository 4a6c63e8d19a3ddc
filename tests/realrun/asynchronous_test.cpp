// Schedules without a flush against a serial reference that knows no pipeline: it keeps every version that each stage's
// weights ever had, computes each microbatch with the versions that the papers define, and applies the gradients in
// order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "model/error/error.hpp"
#include "realrun/network/corpus.hpp"
#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

struct ReferenceStage {
  std::vector<LayerPointer<float>> units;
  std::vector<ParameterList> lists;
  std::vector<std::vector<float>> versions;  // of all units, one behind the other
  std::vector<float> gradients;
  std::vector<float> velocity;
};

// PipeDream (Harlap et al. 1806.03377 §3.3): w[k+1] = w[k] - rate · gradient of microbatch k at version
// max(0, k - (p - 1 - s)) of each stage s. PipeDream-2BW (Narayanan et al. 2006.09503 §3.1): batch t of a microbatches
// at version max(0, t - 1) of all stages.
class DelayedGradients {
 public:
  DelayedGradients(const NetworkSpec& network, const std::vector<int>& stage_blocks) : network_(network) {
    for (const StagePart& part : split_network(stage_blocks)) {
      ReferenceStage stage;
      stage.units = build_stage<float>(network, part, {.group = &alone_});
      std::vector<float> weights;
      for (const LayerPointer<float>& unit : stage.units) {
        ParameterList list;
        unit->declare(list);
        std::vector<float> values(list.size());
        initialise(list, network.seed, values.data());
        weights.insert(weights.end(), values.begin(), values.end());
        stage.lists.push_back(list);
      }
      stage.gradients.resize(weights.size());
      stage.velocity.resize(weights.size());
      stage.versions = {weights};
      stages_.push_back(std::move(stage));
    }
  }

  int stage_count() const { return static_cast<int>(stages_.size()); }

  // Gradients of one microbatch with the given version of each stage; returns its loss.
  double accumulate(const Microbatch& data, const std::vector<int>& version, float weight) {
    double loss = 0;
    Tensor<float> flow;
    std::vector<std::vector<Saved<float>>> saved(stages_.size());
    for (std::size_t index = 0; index < stages_.size(); ++index) {
      ReferenceStage& stage = stages_[index];
      saved[index].resize(stage.units.size());
      std::size_t offset = 0;
      for (std::size_t unit = 0; unit < stage.units.size(); ++unit) {
        flow = stage.units[unit]->forward(flow, pass(index, version, offset, data, weight, loss), saved[index][unit]);
        offset += stage.lists[unit].size();
      }
    }
    for (std::size_t index = stages_.size(); index-- > 0;) {
      ReferenceStage& stage = stages_[index];
      std::size_t offset = stage.gradients.size();
      for (std::size_t unit = stage.units.size(); unit-- > 0;) {
        offset -= stage.lists[unit].size();
        const Pass<float> work = pass(index, version, offset, data, weight, loss);
        flow = stage.units[unit]->input_gradient(flow, work, saved[index][unit]);
        stage.units[unit]->weight_gradient(work, saved[index][unit]);
      }
    }
    return loss;
  }

  void update(float rate, float momentum) {
    for (ReferenceStage& stage : stages_) {
      std::vector<float> next = stage.versions.back();
      for (std::size_t index = 0; index < next.size(); ++index) {
        stage.velocity[index] = momentum * stage.velocity[index] + stage.gradients[index];
        next[index] -= rate * stage.velocity[index];
      }
      stage.versions.push_back(next);
      std::fill(stage.gradients.begin(), stage.gradients.end(), 0.0F);
    }
  }

  std::map<std::string, std::vector<float>> weights() const {
    std::map<std::string, std::vector<float>> named;
    for (const ReferenceStage& stage : stages_) {
      std::size_t start = 0;
      for (const ParameterList& list : stage.lists) {
        for (const Parameter& parameter : list.parameters()) {
          const float* first = stage.versions.back().data() + start + parameter.offset;
          named[parameter.name] = {first, first + parameter.shard.count()};
        }
        start += list.size();
      }
    }
    return named;
  }

 private:
  Pass<float> pass(std::size_t stage, const std::vector<int>& version, std::size_t offset, const Microbatch& data,
                   float weight, double& loss) {
    ReferenceStage& held = stages_[stage];
    return {.weights = held.versions.at(static_cast<std::size_t>(version[stage])).data() + offset,
            .gradients = held.gradients.data() + offset,
            .data = &data,
            .loss_weight = weight,
            .loss = &loss};
  }

  NetworkSpec network_;
  TensorGroup alone_;
  std::vector<ReferenceStage> stages_;
};

struct Reference {
  double mean_loss = 0;
  std::map<std::string, std::vector<float>> weights;
};

// `version_of(stage, microbatch)` by the papers' formulas; one update after every `accumulation` microbatches of each
// of the replicas.
template <class VersionOf>
Reference train_serially(const TrainingPlan& plan, int accumulation, VersionOf version_of) {
  DelayedGradients model(plan.network, plan.stage_blocks);
  const Corpus corpus{plan.network.vocab, plan.network.sequence, plan.network.seed};
  const int microbatches = plan.microbatches();
  Reference result;
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    std::vector<int> versions;
    for (int stage = 0; stage < model.stage_count(); ++stage) versions.push_back(version_of(stage, microbatch));
    for (int replica = 0; replica < plan.dp; ++replica) {
      const int sample = (replica * microbatches + microbatch) * plan.micro_batch_size;
      result.mean_loss += model.accumulate(corpus.microbatch(static_cast<std::uint64_t>(sample), plan.micro_batch_size),
                                           versions, 1.0F / static_cast<float>(accumulation * plan.dp));
    }
    if ((microbatch + 1) % accumulation == 0) model.update(plan.optimizer.rate, plan.optimizer.momentum);
  }
  result.mean_loss /= microbatches * plan.dp;
  result.weights = model.weights();
  return result;
}

void expect_equal(const Reference& expected, const std::vector<RankResult>& ranks, const std::string& what) {
  EXPECT_NEAR(mean_losses(ranks).front(), expected.mean_loss, 1e-5 * expected.mean_loss) << what;
  const auto weights = whole_weights(ranks);
  ASSERT_EQ(weights.size(), expected.weights.size());
  for (const auto& [name, values] : weights) {
    const std::vector<float>& reference = expected.weights.at(name);
    ASSERT_EQ(values.size(), reference.size());
    float largest = kTypicalWeight;
    float error = 0;
    for (std::size_t index = 0; index < values.size(); ++index) {
      largest = std::max(largest, std::abs(reference[index]));
      error = std::max(error, std::abs(values[index] - reference[index]));
    }
    EXPECT_LE(error, 1e-5F * largest) << what << ", " << name;
  }
}

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
      const Reference reference = train_serially(
          plan, 1, [&](int stage, int microbatch) { return std::max(0, microbatch - (pipeline_ranks - 1 - stage)); });
      expect_equal(reference, train_on_threads(plan, {}), fmt::format("pipedream p={} dp={}", pipeline_ranks, dp));
    }
  }
}

TEST(AsynchronousRun, PipeDreamWithVerticalSyncTakesTheFirstStagesVersion) {
  const int pipeline_ranks = 3;
  TrainingPlan plan = asynchronous_plan("pipedream", pipeline_ranks, 9, std::nullopt);
  plan.updates.policy = WeightPolicy::kVerticalSync;
  const Reference reference = train_serially(
      plan, 1, [&](int /*stage*/, int microbatch) { return std::max(0, microbatch - (pipeline_ranks - 1)); });
  expect_equal(reference, train_on_threads(plan, {}), "vertical sync");
}

TEST(AsynchronousRun, DoubleBufferedUpdatesLagByOne) {
  for (const int pipeline_ranks : {1, 2, 4}) {
    for (const int dp : {1, 2}) {
      const int accumulation = std::max(2, pipeline_ranks);
      TrainingPlan plan = asynchronous_plan("pipedream-2bw", pipeline_ranks, 5 * accumulation, accumulation);
      plan.dp = dp;
      const Reference reference = train_serially(plan, accumulation, [&](int /*stage*/, int microbatch) {
        return std::max(0, microbatch / accumulation - 1);
      });
      expect_equal(reference, train_on_threads(plan, {}), fmt::format("2bw p={} dp={}", pipeline_ranks, dp));
    }
  }
}

// The delays matter: without them the weights would be visibly different.
TEST(AsynchronousRun, DelayedGradientsAreNotThoseOfOneRank) {
  const TrainingPlan plan = asynchronous_plan("pipedream", 4, 11, std::nullopt);
  const Reference without_delay = train_serially(plan, 1, [](int /*stage*/, int microbatch) { return microbatch; });
  const double delayed = mean_losses(train_on_threads(plan, {})).front();
  EXPECT_GT(std::abs(delayed - without_delay.mean_loss), 1e-3);
}

TEST(AsynchronousRun, RefusesWhatHasNoMeaning) {
  TrainingPlan tied = asynchronous_plan("pipedream", 2, 4, std::nullopt);
  tied.network.tied = true;
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
