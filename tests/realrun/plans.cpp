#include "tests/realrun/plans.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace flopcast::realrun {

NetworkSpec tiny_transformer(int blocks) {
  NetworkSpec network;
  network.layers = blocks;
  network.hidden = 8;
  network.heads = 4;
  network.ffn = 16;
  network.vocab = 12;
  network.sequence = 4;
  network.seed = 7;
  return network;
}

namespace {

Experts some_experts(int count, int top_k, int ffn) {
  Experts experts;
  experts.count = count;
  experts.top_k = top_k;
  experts.ffn = ffn;
  return experts;
}

}  // namespace

std::vector<NamedNetwork> network_forms(int blocks) {
  NetworkSpec llama = tiny_transformer(blocks);
  llama.kv_heads = 2;
  llama.gated_mlp = true;
  llama.biases = false;
  llama.norm = Norm::kRmsNorm;
  llama.positions = Positions::kRotary;
  NetworkSpec qwen = llama;
  qwen.head_dim = 6;
  qwen.attention_bias = true;
  qwen.qk_norm = true;
  NetworkSpec mistral = llama;
  mistral.sliding_window = 2;
  mistral.windowed_layers = blocks;
  NetworkSpec gemma = mistral;
  gemma.windowed_layers = blocks / 2;
  gemma.post_norms = true;
  gemma.tied_embeddings = true;
  NetworkSpec chunked = llama;
  chunked.attention_chunk = 3;
  chunked.windowed_layers = blocks / 2;
  NetworkSpec falcon = tiny_transformer(blocks);
  falcon.biases = false;
  falcon.kv_heads = 2;
  falcon.block = BlockForm::kParallelOneNorm;
  falcon.positions = Positions::kRotary;
  NetworkSpec neox = tiny_transformer(blocks);
  neox.block = BlockForm::kParallel;
  neox.positions = Positions::kRotary;
  NetworkSpec bloom = tiny_transformer(blocks);
  bloom.positions = Positions::kAlibi;
  bloom.embedding_norm = true;
  bloom.tied_embeddings = true;
  NetworkSpec bert = tiny_transformer(blocks);
  bert.causal = false;
  bert.embedding_norm = true;
  bert.position_rows = 6;
  NetworkSpec mixtral = llama;
  mixtral.experts = some_experts(4, 2, 8);
  NetworkSpec deepseek = llama;
  deepseek.experts = some_experts(8, 3, 4);
  deepseek.experts->shared = 2;
  deepseek.experts->shared_ffn = 6;
  deepseek.experts->first_dense_layers = 1;
  NetworkSpec oss = llama;
  oss.biases = true;
  oss.experts = some_experts(4, 2, 8);
  oss.experts->router_bias = true;
  NetworkSpec gshard = tiny_transformer(blocks);
  gshard.experts = some_experts(4, 2, 8);
  gshard.experts->capacity_factor = 1.0;
  gshard.experts->every = 2;
  return {{"Mixtral", mixtral}, {"DeepSeek MoE", deepseek}, {"gpt-oss", oss},     {"GShard", gshard},
          {"Llama", llama},     {"Qwen 3", qwen},           {"Mistral", mistral}, {"Gemma 2", gemma},
          {"Llama 4", chunked}, {"Falcon", falcon},         {"GPT-NeoX", neox},   {"BLOOM", bloom},
          {"BERT", bert}};
}

NetworkSpec random_network(std::uint64_t seed) {
  std::uint64_t state = mix(seed);
  const auto draw = [&state](int count) {
    state = mix(state);
    return static_cast<int>(state % static_cast<std::uint64_t>(count));
  };
  NetworkSpec network = tiny_transformer(4);
  network.seed = state;
  network.hidden = 8 + 4 * draw(3);
  network.heads = 4;
  network.kv_heads = 2 + 2 * draw(2);
  network.head_dim = 2 + 2 * draw(3);
  network.ffn = 8 + 4 * draw(4);
  network.sequence = 4 + 4 * draw(2);
  network.position_rows = network.sequence + draw(3);
  network.gated_mlp = draw(2) == 0;
  network.biases = draw(2) == 0;
  network.attention_bias = draw(3) == 0;
  network.qk_norm = draw(3) == 0;
  network.embedding_norm = draw(4) == 0;
  network.post_norms = draw(4) == 0;
  constexpr BlockForm kBlocks[] = {BlockForm::kSequential, BlockForm::kSequential, BlockForm::kParallel,
                                   BlockForm::kParallelOneNorm};
  network.block = kBlocks[draw(4)];
  network.norm = draw(2) == 0 ? Norm::kRmsNorm : Norm::kLayerNorm;
  network.positions = static_cast<Positions>(draw(4));
  network.tied_embeddings = draw(3) == 0;
  const int window = draw(4);
  if (window == 0) network.sliding_window = 1 + draw(5);
  if (window == 1) network.attention_chunk = 1 + draw(5);
  if (window < 2) network.windowed_layers = 1 + draw(4);
  network.causal = window < 2 || draw(4) > 0;
  if (draw(3) == 0) {
    network.experts = some_experts(4 << draw(2), 1 + draw(3), 4 + 4 * draw(2));
    network.experts->shared = draw(2);
    network.experts->shared_ffn = 4;
    network.experts->first_dense_layers = draw(2);
    network.experts->every = 1 + draw(2);
    network.experts->router_bias = draw(3) == 0;
    if (draw(4) == 0) network.experts->capacity_factor = 1.25;
  }
  return network;
}

TrainingPlan plan_for(const NetworkSpec& network, const ScheduleInfo& info, const ScheduleRequest& request) {
  TrainingPlan plan;
  plan.network = network;
  plan.program = generate_schedule(info, request);
  const Chain& chain = plan.program.chains.front();
  plan.stage_blocks = even_stage_layers(network.layers, chain.last_stage - chain.first_stage + 1);
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
  serial.stage_blocks = {plan.network.layers};
  serial.dp = 1;
  serial.tp = 1;
  serial.tensor_parallel = TensorParallel::k1d;
  serial.ep = 1;
  serial.etp = 0;
  serial.cp = 1;
  serial.context_inner = 1;
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

// Copies one rank's part into the whole; elements written twice must be equal.
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
