// The network's hand-written passes agree with finite differences, and partitions do not change results.
#include "realrun/network/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

NetworkSpec small_network(bool tied) {
  NetworkSpec spec;
  spec.layers = 2;
  spec.hidden = 6;
  spec.heads = 2;
  spec.ffn = 10;
  spec.vocab = 7;
  spec.sequence = 4;
  spec.tied_embeddings = tied;
  return spec;
}

// Stages in sequence in double precision, each with flat weights and gradients.
class Pipeline {
 public:
  Pipeline(const NetworkSpec& spec, const std::vector<int>& stage_blocks) {
    for (const StagePart& part : split_network(stage_blocks)) {
      Stage stage;
      stage.layers = std::make_unique<Sequence<double>>(build_stage<double>(spec, part, {.group = &alone_}));
      stage.layers->declare(stage.parameters);
      stage.weights.resize(stage.parameters.size());
      stage.gradients.resize(stage.parameters.size());
      initialise(stage.parameters, spec.seed, stage.weights.data());
      // As in a later step: a factor of zero would have no gradient.
      for (const Parameter& parameter : stage.parameters.parameters()) {
        if (parameter.name.find("lora_b") == std::string::npos) continue;
        for (std::size_t index = 0; index < parameter.shard.count(); ++index) {
          stage.weights[parameter.offset + index] = 0.1 * std::sin(1.0 + static_cast<double>(index));
        }
      }
      stages_.push_back(std::move(stage));
    }
  }

  double loss(const Microbatch& data) {
    Tensor<double> flow;
    for (Stage& stage : stages_) flow = stage.layers->forward(flow, pass(stage, data), stage.saved);
    return loss_();
  }

  // All input gradients first, then all weight gradients from the first stage on: the split that schedules use.
  void backward(const Microbatch& data) {
    Tensor<double> flow;
    for (std::size_t index = stages_.size(); index-- > 0;) {
      Stage& stage = stages_[index];
      flow = stage.layers->input_gradient(flow, pass(stage, data), stage.saved);
    }
    for (Stage& stage : stages_) stage.layers->weight_gradient(pass(stage, data), stage.saved);
  }

  struct Stage {
    LayerPointer<double> layers;
    ParameterList parameters;
    std::vector<double> weights;
    std::vector<double> gradients;
    Saved<double> saved;
  };
  std::vector<Stage>& stages() { return stages_; }

 private:
  Pass<double> pass(Stage& stage, const Microbatch& data) {
    return {.weights = stage.weights.data(),
            .gradients = stage.gradients.data(),
            .data = &data,
            .loss_weight = 1.0,
            .loss = &loss_};
  }

  TensorGroup alone_;
  std::vector<Stage> stages_;
  Loss loss_;
};

void expect_exact_gradients(const NetworkSpec& spec, const std::vector<int>& stage_blocks) {
  const Microbatch data = Corpus{spec.vocab, spec.sequence, 3}.microbatch(5, 2);
  Pipeline pipeline(spec, stage_blocks);
  pipeline.loss(data);
  pipeline.backward(data);
  constexpr double kStep = 3e-6;
  int checked = 0;
  double largest = 0;
  for (Pipeline::Stage& stage : pipeline.stages()) {
    for (const Parameter& parameter : stage.parameters.parameters()) {
      for (std::size_t index = parameter.offset; index < parameter.offset + parameter.shard.count(); ++index) {
        if (parameter.frozen) {
          EXPECT_EQ(stage.gradients[index], 0.0) << parameter.name;
          continue;
        }
        double& weight = stage.weights[index];
        const double before = weight;
        const auto loss_at = [&](double steps) {
          weight = before + steps * kStep;
          return pipeline.loss(data);
        };
        // Fourth order, because norms of small rows make the loss curve.
        const double near = loss_at(1) - loss_at(-1);
        const double far = loss_at(2) - loss_at(-2);
        weight = before;
        EXPECT_NEAR(stage.gradients[index], (8 * near - far) / (12 * kStep), 2e-8)
            << parameter.name << " element " << index - parameter.offset;
        largest = std::max(largest, std::abs(stage.gradients[index]));
        ++checked;
      }
    }
  }
  EXPECT_GT(largest, 1e-2);
  std::cout << checked << " derivatives checked\n";
}

TEST(NetworkGradients, OfATransformerAgreeWithFiniteDifferences) {
  expect_exact_gradients(small_network(false), {2});
}

TEST(NetworkGradients, OfAPartitionedTransformerAgreeToo) {
  expect_exact_gradients(small_network(false), {0, 1, 1, 0});
}

TEST(NetworkGradients, OfEveryFormAgreeToo) {
  for (auto& [name, network] : network_forms(2)) {
    SCOPED_TRACE(name);
    network.sequence = 5;
    network.ffn = 6;
    network.vocab = 7;
    expect_exact_gradients(network, {2});
  }
}

TEST(NetworkGradients, OfAdaptersAndOfWhatIsNotFrozenAgreeToo) {
  Finetune whole;
  whole.method = FinetuneMethod::kLora;
  whole.rank = 3;
  whole.alpha = 5.0;
  Finetune fused = whole;
  fused.targets = bit_of(AdapterTarget::kFusedQkv) | bit_of(AdapterTarget::kFusedUp);
  fused.embeddings = true;
  Finetune last;
  last.method = FinetuneMethod::kFreeze;
  last.trainable_layers = 1;
  Finetune first = last;
  first.trainable_layers = -1;
  for (const Finetune& finetune : {whole, fused, last, first}) {
    for (auto& [name, network] : network_forms(2)) {
      if (finetune.adapts() && network.experts) continue;
      SCOPED_TRACE(name);
      network.sequence = 4;
      network.ffn = 6;
      network.vocab = 7;
      network.finetune = finetune;
      expect_exact_gradients(network, {1, 1});
    }
  }
}

TEST(NetworkGradients, OfANormOverAllHeadsAgreeToo) {
  NetworkSpec network = small_network(false);
  network.kv_heads = 1;
  network.head_dim = 4;
  network.qk_norm = true;
  network.whole_qk_norm = true;
  expect_exact_gradients(network, {2});
}

TEST(NetworkGradients, OfRandomNetworksAgreeToo) {
  for (std::uint64_t seed = 500; seed < 512; ++seed) {
    SCOPED_TRACE(seed);
    NetworkSpec network = random_network(seed);
    network.layers = 2;
    expect_exact_gradients(network, {1, 1});
  }
}

// All gradients of a pipeline, stage by stage, if each sequence passes in `slices` slices.
std::vector<std::vector<double>> gradients_in_slices(const NetworkSpec& spec, const Microbatch& data, int slices) {
  Pipeline pipeline(spec, {1, 1});
  std::vector<Pipeline::Stage>& stages = pipeline.stages();
  std::vector<SliceExchange<double>> exchanges(stages.size());
  std::vector<std::vector<Saved<double>>> saved(stages.size(),
                                                std::vector<Saved<double>>(static_cast<std::size_t>(slices)));
  std::vector<Microbatch> parts;
  Loss loss;
  const auto pass = [&](std::size_t stage, int slice) {
    Pass<double> work;
    work.weights = stages[stage].weights.data();
    work.gradients = stages[stage].gradients.data();
    work.data = &parts[static_cast<std::size_t>(slice)];
    work.loss_weight = 1.0 / slices;
    work.loss = &loss;
    work.slice = {slice, slices};
    if (slices > 1) work.slices = &exchanges[stage];
    return work;
  };
  for (int slice = 0; slice < slices; ++slice) {
    parts.push_back(cut(data, static_cast<std::size_t>(spec.sequence), {slice, slices}));
  }
  for (int slice = 0; slice < slices; ++slice) {
    Tensor<double> flow;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      flow = stages[stage].layers->forward(flow, pass(stage, slice), saved[stage][static_cast<std::size_t>(slice)]);
    }
  }
  for (int slice = slices; slice-- > 0;) {
    Tensor<double> flow;
    for (std::size_t stage = stages.size(); stage-- > 0;) {
      Saved<double>& kept = saved[stage][static_cast<std::size_t>(slice)];
      flow = stages[stage].layers->input_gradient(flow, pass(stage, slice), kept);
      stages[stage].layers->weight_gradient(pass(stage, slice), kept);
    }
  }
  std::vector<std::vector<double>> gradients;
  for (const Pipeline::Stage& stage : stages) gradients.push_back(stage.gradients);
  return gradients;
}

TEST(NetworkSlices, AddUpToWholeSequences) {
  const NetworkSpec spec = small_network(true);
  const Microbatch data = Corpus{spec.vocab, spec.sequence, 3}.microbatch(5, 3);
  const auto whole = gradients_in_slices(spec, data, 1);
  for (const int slices : {2, 4}) {
    const auto sliced = gradients_in_slices(spec, data, slices);
    for (std::size_t stage = 0; stage < whole.size(); ++stage) {
      for (std::size_t index = 0; index < whole[stage].size(); ++index) {
        EXPECT_NEAR(sliced[stage][index], whole[stage][index], 1e-14) << slices << " slices, stage " << stage;
      }
    }
  }
}

std::map<std::string, std::vector<double>> weights_by_name(const NetworkSpec& spec, const std::vector<int>& blocks) {
  std::map<std::string, std::vector<double>> weights;
  Pipeline pipeline(spec, blocks);
  for (const Pipeline::Stage& stage : pipeline.stages()) {
    for (const Parameter& parameter : stage.parameters.parameters()) {
      const double* first = stage.weights.data() + parameter.offset;
      const std::vector<double> values(first, first + parameter.shard.count());
      const auto [entry, is_new] = weights.emplace(parameter.name, values);
      EXPECT_EQ(entry->second, values) << parameter.name << " starts differently on another stage";
    }
  }
  return weights;
}

TEST(Network, StartsFromTheSameWeightsInEveryPartition) {
  for (const bool tied : {false, true}) {
    const NetworkSpec spec = small_network(tied);
    const auto whole = weights_by_name(spec, {2});
    EXPECT_EQ(whole, weights_by_name(spec, {1, 1}));
    EXPECT_EQ(whole, weights_by_name(spec, {0, 2, 0}));
    EXPECT_EQ(whole.count("head.weight"), tied ? 0U : 1U);
  }
}

// ALiBi 2108.12409 §3: for 8 heads 1/2, 1/4, … 1/256; for 12 these and every other slope of 16 heads.
TEST(Network, LinearBiasesHaveThePapersSlopes) {
  const LinearBiases eight{0, 8};
  EXPECT_DOUBLE_EQ(eight.slope(0), 0.5);
  EXPECT_DOUBLE_EQ(eight.slope(7), 1.0 / 256);
  const LinearBiases twelve{0, 12};
  EXPECT_DOUBLE_EQ(twelve.slope(7), 1.0 / 256);
  EXPECT_DOUBLE_EQ(twelve.slope(8), std::exp2(-0.5));
  EXPECT_DOUBLE_EQ(twelve.slope(11), std::exp2(-3.5));
}

// Scores of queries and keys with equal content depend only on their distance.
TEST(Network, RotatedProductsDependOnTheDistance) {
  const HeadLayout heads{1, 1, 6};
  Tensor<double> x(9, heads.width());
  for (std::size_t row = 0; row < x.rows(); ++row) {
    for (std::size_t column = 0; column < x.columns(); ++column) {
      x.row(row)[column] = std::sin(static_cast<double>(column) + 1.0);
    }
  }
  Tensor<double> y(9, heads.width());
  host_kernels<double>().rotate_heads(x, heads, {0, 9, 40}, 1.0, y);
  const auto score = [&](std::size_t query, std::size_t key) {
    double sum = 0;
    for (std::size_t index = 0; index < 6; ++index) sum += y.row(query)[index] * y.row(key)[6 + index];
    return sum;
  };
  EXPECT_NEAR(score(3, 1), score(8, 6), 1e-12);
  EXPECT_GT(std::abs(score(3, 1) - score(3, 2)), 1e-3);
  EXPECT_EQ(y.row(4)[13], x.row(4)[13]) << "values are unchanged";
}

TEST(Network, ShardsAreRectanglesOfTheWholeParameter) {
  ParameterList list;
  list.add({.name = "a", .shard = whole_matrix(4, 6), .deviation = 1});
  list.add({.name = "a", .shard = rows_of(4, 6, 1, 2), .deviation = 1});
  list.add({.name = "a", .shard = columns_of(4, 6, 2, 3), .deviation = 1});
  list.add({.name = "b", .shard = whole_matrix(4, 6), .deviation = 1});
  std::vector<float> values(list.size());
  initialise(list, 9, values.data());
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t column = 0; column < 6; ++column) {
      EXPECT_EQ(values[24 + row * 6 + column], values[(row + 2) * 6 + column]);
    }
  }
  for (std::size_t row = 0; row < 4; ++row) {
    for (std::size_t column = 0; column < 2; ++column) {
      EXPECT_EQ(values[36 + row * 2 + column], values[row * 6 + 4 + column]);
    }
  }
  EXPECT_NE(values[0], values[44]) << "the name is part of the seed";
}

TEST(Corpus, IsTheSameForEveryReader) {
  const Corpus corpus{13, 5, 2};
  const Microbatch all = corpus.microbatch(0, 4);
  const Microbatch second = corpus.microbatch(2, 2);
  EXPECT_TRUE(std::equal(second.tokens.begin(), second.tokens.end(), all.tokens.begin() + 10));
  EXPECT_TRUE(std::equal(second.targets.begin(), second.targets.end(), all.targets.begin() + 10));
  EXPECT_TRUE(std::equal(all.targets.begin(), all.targets.begin() + 4, all.tokens.begin() + 1));
}

TEST(Corpus, CanBeLearned) {
  const Microbatch text = Corpus{16, 64, 1}.microbatch(0, 64);
  std::map<int, std::map<int, int>> followers;
  for (std::size_t index = 0; index < text.tokens.size(); ++index) ++followers[text.tokens[index]][text.targets[index]];
  int likeliest = 0;
  for (const auto& [token, counts] : followers) {
    likeliest += std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                   return a.second < b.second;
                 })->second;
  }
  const double share = static_cast<double>(likeliest) / static_cast<double>(text.tokens.size());
  EXPECT_GT(share, 0.8);
  EXPECT_LT(share, 0.95);
}

}  // namespace
}  // namespace flopcast::realrun
