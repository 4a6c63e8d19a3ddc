#include <gtest/gtest.h>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "model/partition/balanced_split.hpp"
#include "model/partition/pipedream_planner.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

TEST(MinMaxPartition, ClosedCases) {
  EXPECT_EQ(min_max_partition({1, 1, 1, 1}, 2), std::vector<int>({2, 2}));
  EXPECT_EQ(min_max_partition({1, 2, 3, 4, 5, 6}, 2), std::vector<int>({4, 2}));
  EXPECT_EQ(min_max_partition({42}, 1), std::vector<int>({1}));
  EXPECT_EQ(min_max_partition({0, 0}, 2), std::vector<int>({1, 1}));
  EXPECT_EQ(min_max_partition({9, 1, 1, 1}, 3), std::vector<int>({1, 2, 1}));  // early parts take more
  EXPECT_EQ(min_max_partition(std::vector<double>(10, 1.0), 4), std::vector<int>({3, 3, 3, 1}));
}

TEST(MinMaxPartition, RefusesWhatHasNoAnswer) {
  EXPECT_THROW(min_max_partition({}, 1), ConfigError);
  EXPECT_THROW(min_max_partition({42}, -1), ConfigError);
  EXPECT_THROW(min_max_partition({42}, 0), ConfigError);
  EXPECT_THROW(min_max_partition({1, 2}, 3), ConfigError);
  EXPECT_THROW(min_max_partition({1, -2}, 1), ConfigError);
}

std::string node(const char* name, double ms, double activation, double parameters) {
  const auto text = [](double value) { return std::to_string(value); };
  return std::string(name) + " -- Layer -- forward_compute_time=" + text(ms) + ", backward_compute_time=0.0, " +
         "activation_size=" + text(activation) + ", parameter_size=" + text(parameters) + "\n";
}

CutStates chain(double parameters, double activation) {
  return cut_states(
      read_layer_graph(node("node1", 1000, activation, parameters) + node("node2", 1000, activation, parameters) +
                           node("node3", 2000, activation, parameters) + "\tnode1 -- node2\n\tnode2 -- node3\n",
                       "chain.txt"));
}

PipelinePlan plan_of(const CutStates& cuts, const std::vector<PlannerLevel>& levels, const PlannerOptions& options) {
  const auto plan = plan_pipeline(cuts, levels, options);
  EXPECT_TRUE(plan.has_value());
  return plan.value_or(PipelinePlan());
}

TEST(PipeDreamPlanner, FreeCommunicationSplitsEvenly) {
  const PipelinePlan plan = plan_of(chain(0, 0), {{4, BytesPerSecond(1)}}, {});
  EXPECT_DOUBLE_EQ(plan.time_per_minibatch.value(), 1.0);
  EXPECT_DOUBLE_EQ(plan.one_worker.value(), 4.0);
  EXPECT_EQ(plan.workers, 4);
}

// T(m) = max(4 s, 2(m-1)·3 B / (1 B/s)) / m: two replicas take 3 s per minibatch, a cut that sends 2·0.5 B only 2 s.
TEST(PipeDreamPlanner, HeavyWeightsMakeAPipeline) {
  const CutStates cuts = chain(1, 0.5);
  const PipelinePlan plan = plan_of(cuts, {{2, BytesPerSecond(1)}}, {});
  EXPECT_DOUBLE_EQ(plan.time_per_minibatch.value(), 2.0);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].last_state, 1u);
  EXPECT_DOUBLE_EQ(plan.data_parallel.value(), 3.0);
  // Large activations make the pipeline slower.
  EXPECT_EQ(plan_of(chain(1, 3), {{2, BytesPerSecond(1)}}, {}).stages.size(), 1u);
}

TEST(PipeDreamPlanner, TheCodeAddsWhatThePaperOverlaps) {
  PlannerOptions options;
  options.rules = PlannerRules::kPublishedCode;
  // (4 + 4·1/2·3)/2 = 5 on both, compared with 2 in a pipeline whose activations are free.
  const PipelinePlan plan = plan_of(chain(1, 3), {{2, BytesPerSecond(1)}}, options);
  EXPECT_DOUBLE_EQ(plan.time_per_minibatch.value(), 2.0);
  EXPECT_DOUBLE_EQ(plan.data_parallel.value(), 5.0);
}

TEST(PipeDreamPlanner, StraightPipelinesUseEveryWorkerOrSayNo) {
  PlannerOptions options;
  options.straight = true;
  EXPECT_FALSE(plan_pipeline(chain(0, 0), {{4, BytesPerSecond(1)}}, options).has_value());
  options.fewer_workers = true;
  const PipelinePlan plan = plan_of(chain(0, 0), {{4, BytesPerSecond(1)}}, options);
  EXPECT_DOUBLE_EQ(plan.time_per_minibatch.value(), 2.0);
  EXPECT_EQ(plan.workers, 2);
}

// Three layers of 1 B weights and 1 B activations, two workers: the first of two stages keeps two versions.
TEST(PipeDreamPlanner, MemoryCountsTheMinibatchesInFlight) {
  PlannerOptions options;
  options.straight = true;
  const auto fits = [&](double memory) {
    options.memory = Bytes(memory);
    return plan_pipeline(chain(1, 1), {{2, BytesPerSecond(1)}}, options).has_value();
  };
  EXPECT_TRUE(fits(8.0));  // two layers first, two versions of 4 B
  EXPECT_TRUE(fits(4.0));  // one layer first: 2 · 2 B; two layers second, one version: 4 B
  EXPECT_FALSE(fits(3.9));
}

TEST(CutStates, ABranchMayBeCutOnEitherSide) {
  const std::string text = node("node1", 1, 8, 0) + node("node2", 1, 4, 0) + node("node3", 1, 2, 0) +
                           node("node4", 1, 1, 0) +
                           "\tnode1 -- node2\n\tnode1 -- node3\n\tnode2 -- node4\n\tnode3 -- node4\n";
  const CutStates cuts = cut_states(read_layer_graph(text, "diamond.txt"));
  ASSERT_EQ(cuts.states.size(), 5u);  // {1}, {1,2}, {1,3}, {1,2,3}, all
  EXPECT_DOUBLE_EQ(cuts.states[0].crossing.value(), 8.0);
  EXPECT_DOUBLE_EQ(cuts.states[3].crossing.value(), 6.0);
  EXPECT_DOUBLE_EQ(cuts.states[4].crossing.value(), 0.0);
  const CutStates row = cut_states(read_layer_graph(text, "diamond.txt"), 3);
  EXPECT_TRUE(row.in_a_row);
  EXPECT_EQ(row.states.size(), 4u);
}

SplitCosts alike(int ranks, int chunks, int layers, double head) {
  SplitCosts costs;
  costs.model_stages = ranks * chunks;
  for (int stage = 0; stage < costs.model_stages; ++stage) {
    costs.rank_of_stage.push_back(stage % ranks);
    costs.fixed.push_back(stage + 1 == costs.model_stages ? head : 0.0);
    costs.layer.emplace_back(static_cast<std::size_t>(layers), 1.0);
  }
  return costs;
}

TEST(BalancedSplit, TheHeadTakesThePlaceOfLayers) {
  EXPECT_EQ(balanced_split(alike(4, 1, 8, 0.0), {2, 2, 2, 2}), std::vector<int>({2, 2, 2, 2}));
  EXPECT_EQ(balanced_split(alike(4, 1, 14, 2.0), {4, 4, 3, 3}), std::vector<int>({4, 4, 4, 2}));
  EXPECT_EQ(balanced_split(alike(4, 1, 7, 0.0), {2, 2, 2, 1}), std::vector<int>({1, 2, 2, 2}));  // fewer early
  EXPECT_EQ(balanced_split(alike(4, 1, 9, 9.0), {3, 2, 2, 2}), std::vector<int>({3, 3, 3, 0}));
}

TEST(BalancedSplit, ChunksOfARankShareItsLoad) {
  // Twelve layers and a head of four: each of two ranks gets 8, and the last chunk has only the head.
  const std::vector<int> split = balanced_split(alike(2, 2, 12, 4.0), {3, 3, 3, 3});
  const SplitQuality quality = quality_of(alike(2, 2, 12, 4.0), split);
  EXPECT_DOUBLE_EQ(quality.busiest_rank, 8.0);
  EXPECT_DOUBLE_EQ(quality.dearest_stage, 4.0);
  EXPECT_EQ(split, std::vector<int>({4, 4, 4, 0}));
}

// The model's stage times are fixed costs plus the layers, for dense models and for mixtures of experts.
TEST(BalancedSplit, CostsAddUpToThePricedStages) {
  for (const char* model : {"llama3-8b", "deepseek-v3", "gpt3-1.3b"}) {
    const Job job =
        job_from(std::string(R"({"model": ")") + model +
                 R"(", "cluster": "2xdgx-h100", "layout": {"pp": 4, "recompute": "full", "global_batch_size": 64}})");
    const StageMap map = {{0, 1, 2, 3}, 4, {}};
    const std::vector<int> layers = even_stage_layers(job.model.layers, 4);
    const StepCosts priced = price_step(job, map, layers);
    double dearest = 0.0;
    for (const StageCosts& stage : priced.stages) {
      dearest = std::max(dearest, (stage.forward.total() + stage.recompute.total() + stage.input_gradient.total() +
                                   stage.weight_gradient.total() - stage.tp_hidden)
                                      .value());
    }
    EXPECT_NEAR(quality_of(split_costs(job, map), layers).dearest_stage / dearest, 1.0, 1e-9) << model;
  }
}

// Splits of published steps in the Ultra-Scale Playbook: the head of 1B counts as four layers, that of 8B as 2.2.
TEST(SplitByParameters, KeepsTheHeadOfNanotronByItself) {
  Transformer small;
  small.layers = 16;
  small.hidden = 2048;
  small.heads = 32;
  small.head_dim = 64;
  small.ffn = 8192;
  small.vocab = 131072;
  small.gated_mlp = true;
  EXPECT_EQ(split_by_parameters(small, 1), (std::vector<int>{16}));
  EXPECT_EQ(split_by_parameters(small, 2), (std::vector<int>{10, 6}));
  EXPECT_EQ(split_by_parameters(small, 4), (std::vector<int>{5, 5, 5, 1}));
  EXPECT_EQ(split_by_parameters(small, 8), (std::vector<int>{3, 3, 2, 2, 2, 2, 2, 0}));
  Transformer large = small;
  large.layers = 32;
  large.hidden = 4096;
  large.head_dim = 128;
  large.ffn = 14336;
  EXPECT_EQ(split_by_parameters(large, 2), (std::vector<int>{17, 15}));
  std::vector<int> single(32, 1);
  single.front() = 2;
  single.back() = 0;
  EXPECT_EQ(split_by_parameters(large, 32), single);
}

}  // namespace
}  // namespace flopcast
