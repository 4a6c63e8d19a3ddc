// Whole networks on grids of tensor-parallel ranks: losses and weights of one rank, the model's bytes, and gradients
// that agree with finite differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/network/tensor_grid.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/realrun/plans.hpp"
#include "tests/realrun/step_volumes.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

constexpr const char* kLlama =
    R"(, "kv_heads": 2, "norm": "rmsnorm", "positions": "rotary", "gated_mlp": true, "biases": false)";
constexpr const char* kQwen = R"(, "kv_heads": 2, "head_dim": 4, "qk_norm": true, "attention_bias": true,
    "norm": "rmsnorm", "positions": "rotary", "gated_mlp": true, "biases": false, "post_norms": true)";
constexpr const char* kBloom = R"(, "positions": "alibi", "embedding_norm": true, "block": "parallel_one_norm")";

PreparedStep grid_job(const std::string& network, const std::string& layout, int ranks) {
  const std::string text =
      fmt::format(R"({{"model": {{"layers": 4, "hidden": 16, "heads": 4, "ffn": 24, "vocab": 36, "sequence_length": 4,
                                  "tied_embeddings": false{}}},
                       "cluster": {{"name": "one-gpu", "nodes": {}}}, "layout": {{{}}},
                       "training": {{"precision": "fp32", "optimizer": "sgd", "stack": "pytorch-ddp"}}}})",
                  network, ranks, layout);
  return prepare(job_as_run(job_from(text), false), no_files);
}

int compare_grid(const std::string& network, const std::string& layout, int ranks_of_all) {
  const std::string what = fmt::format("{} {}", network, layout);
  const PreparedStep step = grid_job(network, layout, ranks_of_all);
  const TrainingPlan plan = plan_from_job(step, {.steps = 3, .learning_rate = 0.05});
  const std::vector<RankResult> ranks = train_on_threads(plan, {});
  expect_same_training(train_on_threads(serial_plan(plan), {}), ranks, what);
  const double dp = step.job.layout.dp;
  for (const RankResult& rank : ranks) {
    const GridVectors vectors = vectors_on_grid(step, rank);
    double tensor = 0;
    double data = step.costs.ranks[static_cast<std::size_t>(rank.pipeline_rank)].dp.sent_per_rank.value();
    for (int stage = 0; stage < step.stages.stages(); ++stage) {
      if (step.program.rank_of_stage[static_cast<std::size_t>(stage)] != rank.pipeline_rank) continue;
      const StagePasses passes = passes_of(step, stage);
      const StageCosts& costs = step.costs.stages[static_cast<std::size_t>(stage)];
      tensor += passes.microbatches * costs.sent.tp.sent_per_rank.value();
      data += passes.microbatches * costs.sent.dp.sent_per_rank.value();
    }
    tensor += vectors.sent * passes_of(step, 0).microbatches;
    data += 2.0 * (dp - 1) / dp * vectors.repeated * kFloatBytes;
    const SentTraffic& traffic = rank.steps.back().traffic;
    EXPECT_NEAR(static_cast<double>(traffic.bytes_of(Axis::kTensor)), tensor, 1e-3) << what << ", rank " << rank.rank;
    EXPECT_NEAR(static_cast<double>(traffic.bytes_of(Axis::kData)), data, 1e-3) << what << ", rank " << rank.rank;
    EXPECT_NEAR(static_cast<double>(traffic.point_to_point.bytes), predicted_point_to_point(step, rank.pipeline_rank),
                1e-3)
        << what << ", rank " << rank.rank;
  }
  return static_cast<int>(ranks.size());
}

struct Degree {
  int ranks = 1;
  const char* text = "";
};

TEST(TensorGrid, TrainsWholeNetworksAndSendsWhatIsForecast) {
  int compared = 0;
  for (const Degree& grid :
       {Degree{4, R"("tensor_parallel": "2d", "tp": 4, "micro_batch_size": 2)"},
        Degree{8, R"("tensor_parallel": "2.5d", "tensor_depth": 2, "tp": 8, "micro_batch_size": 4)"},
        Degree{8, R"("tensor_parallel": "3d", "tp": 8, "micro_batch_size": 4)"}}) {
    for (const char* network : {"", kLlama, kQwen, kBloom}) {
      for (const Degree& rest :
           {Degree{1, R"("global_batch_size": 8)"}, Degree{2, R"("dp": 2, "global_batch_size": 16)"},
            Degree{2, R"("pp": 2, "schedule": "1f1b", "global_batch_size": 8)"},
            Degree{2, R"("pp": 2, "schedule": "zb-h1", "global_batch_size": 8, "recompute": "full",
                         "recompute_layers": 1)"},
            Degree{1, R"("global_batch_size": 8, "recompute": "selective")"}}) {
        compared += compare_grid(network, fmt::format("{}, {}", grid.text, rest.text), grid.ranks * rest.ranks);
      }
    }
  }
  std::cout << compared << " ranks send what is forecast\n";
  EXPECT_EQ(compared, 4 * (4 + 8 + 8) * (1 + 2 + 2 + 2 + 1));
}

TEST(TensorGrid, WiderOnesToo) {
  const char* const text =
      R"({"model": {"layers": 2, "heads": 3, "hidden": 18, "head_dim": 4, "ffn": 24, "vocab": 36, "sequence_length": 4,
                      "tied_embeddings": false, "norm": "rmsnorm", "positions": "rotary"},
          "cluster": {"name": "one-gpu", "nodes": 9},
          "layout": {"tensor_parallel": "2d", "tp": 9, "micro_batch_size": 3, "global_batch_size": 6},
          "training": {"precision": "fp32", "optimizer": "sgd", "stack": "pytorch-ddp"}})";
  const TrainingPlan plan = plan_from_job(prepare(job_as_run(job_from(text), false), no_files), {.steps = 2});
  expect_same_training(train_on_threads(serial_plan(plan), {}), train_on_threads(plan, {}), "2d on nine ranks");
}

/// Results of a rank: the gradients of its weights, and its loss at each step away from a weight.
struct RankDerivatives {
  ParameterList list;
  std::vector<double> gradients;
  std::vector<double> losses;  // four for each tested weight
};

struct ChosenWeight {
  std::string parameter;
  std::size_t row = 0;
  std::size_t column = 0;
};

// Index in the flat weights, if held here.
std::optional<std::size_t> find(const ParameterList& list, const ChosenWeight& element) {
  for (const Parameter& parameter : list.parameters()) {
    const Shard& shard = parameter.shard;
    if (parameter.name != element.parameter || element.row < shard.first_row || element.column < shard.first_column ||
        element.row >= shard.first_row + shard.rows || element.column >= shard.first_column + shard.columns) {
      continue;
    }
    return parameter.offset + (element.row - shard.first_row) * shard.columns + element.column - shard.first_column;
  }
  return std::nullopt;
}

constexpr double kDifference = 3e-6;

RankDerivatives differentiate(RankTransport& transport, const NetworkSpec& network, TensorParallel form,
                              const TensorGrid& grid, const std::vector<ChosenWeight>& tried) {
  std::vector<int> members(static_cast<std::size_t>(grid.ranks()));
  std::iota(members.begin(), members.end(), 0);
  const GridPlace place = form_grid(transport, form, grid, members);
  Sequence<double> layers(
      build_stage<double>(network, {0, network.layers, true, true}, {.group = &place.all, .grid = &place}));
  RankDerivatives found;
  layers.declare(found.list);
  std::vector<double> weights(found.list.size());
  initialise(found.list, network.seed, weights.data());
  found.gradients.resize(weights.size());
  const Microbatch data =
      cut_for_grid(Corpus{network.vocab, network.sequence, 3}.microbatch(5, grid.token_parts), place);
  Saved<double> saved;
  Loss loss;
  const Pass<double> pass{.weights = weights.data(),
                          .gradients = found.gradients.data(),
                          .data = &data,
                          .loss_weight = 1.0 / grid.token_parts,
                          .loss = &loss};
  layers.forward({}, pass, saved);
  layers.input_gradient({}, pass, saved);
  layers.weight_gradient(pass, saved);
  for (const ChosenWeight& element : tried) {
    const std::optional<std::size_t> index = find(found.list, element);
    for (const int steps : {1, -1, 2, -2}) {
      if (index) weights[*index] += steps * kDifference;
      layers.forward({}, pass, saved);
      if (index) weights[*index] -= steps * kDifference;
      found.losses.push_back(loss());
    }
  }
  return found;
}

// Every `every`-th weight of the whole network.
std::vector<ChosenWeight> some_elements(const NetworkSpec& network, std::size_t every) {
  const TensorGroup alone;
  Sequence<double> layers(build_stage<double>(network, {0, network.layers, true, true}, {.group = &alone}));
  ParameterList list;
  layers.declare(list);
  std::vector<ChosenWeight> elements;
  for (const Parameter& parameter : list.parameters()) {
    const std::size_t columns = parameter.shard.columns;
    for (std::size_t index = 0; index < parameter.shard.count(); index += every) {
      elements.push_back({parameter.name, index / columns, index % columns});
    }
  }
  return elements;
}

TEST(TensorGrid, GradientsAgreeWithFiniteDifferences) {
  int checked = 0;
  for (const TensorParallel form : {TensorParallel::k2d, TensorParallel::k25d, TensorParallel::k3d}) {
    const TensorGrid grid = tensor_grid(form, form == TensorParallel::k2d ? 4 : 8, 2);
    for (const bool llama : {false, true}) {
      NetworkSpec network = tiny_transformer(1);
      network.sequence = 3;
      network.embedding_norm = true;
      if (llama) {
        network.norm = Norm::kRmsNorm;
        network.gated_mlp = true;
        network.positions = Positions::kRotary;
        network.qk_norm = true;
        network.kv_heads = 2;
      }
      const std::vector<ChosenWeight> tried = some_elements(network, 11);
      std::vector<RankDerivatives> ranks(static_cast<std::size_t>(grid.ranks()));
      run_threads(grid.ranks(), {}, [&](RankTransport& transport) {
        ranks[static_cast<std::size_t>(transport.rank())] = differentiate(transport, network, form, grid, tried);
      });
      for (std::size_t index = 0; index < tried.size(); ++index) {
        double near = 0;
        double far = 0;
        for (const RankDerivatives& rank : ranks) {
          near += (rank.losses[4 * index] - rank.losses[4 * index + 1]) / grid.ranks();
          far += (rank.losses[4 * index + 2] - rank.losses[4 * index + 3]) / grid.ranks();
        }
        const double expected = (8 * near - far) / (12 * kDifference);
        for (const RankDerivatives& rank : ranks) {
          const std::optional<std::size_t> own = find(rank.list, tried[index]);
          if (!own) continue;
          EXPECT_NEAR(rank.gradients[*own], expected, 2e-8) << name_of(form) << ", " << tried[index].parameter;
          ++checked;
        }
      }
    }
  }
  std::cout << checked << " derivatives checked\n";
  EXPECT_GT(checked, 500);
}

TEST(TensorGrid, RefusesWhatItDoesNotDo) {
  const auto problem = [](const std::string& network, const std::string& layout) -> std::string {
    try {
      plan_from_job(grid_job(network, layout, 4), {});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::string grid = R"("tensor_parallel": "2d", "tp": 4, "micro_batch_size": 2, "global_batch_size": 8)";
  EXPECT_EQ(problem("", grid), "nothing");
  EXPECT_NE(problem("", grid + R"(, "recompute": "selective", "recompute_modules": ["mlp"])").find("attention only"),
            std::string::npos);
  TrainingPlan plan = plan_from_job(grid_job("", grid, 4), {});
  plan.network.tied_embeddings = true;
  EXPECT_THROW(check_plan(plan), ConfigError);
  plan.network.tied_embeddings = false;
  plan.network.vocab = 35;
  EXPECT_THROW(check_plan(plan), ConfigError);
}

}  // namespace
}  // namespace flopcast::realrun
