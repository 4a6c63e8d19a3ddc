#include "model/workload/operators.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/cost/stage_costs.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

// Activation bytes of one layer, Korthikanti et al. 2205.05198 Table 2.
struct ActivationCase {
  const char* layout;
  double expected_per_sbh;  // bytes over s·b·h
};

TEST(Operators, KeepWhatKorthikantiCounts) {
  constexpr double kAttention = 5.0 * 96 * 2048 / 12288;  // 5as/h = 80 for GPT-3 175B
  const ActivationCase cases[] = {
      {R"({"dp": 64, "global_batch_size": 64})", 34 + kAttention},
      {R"({"tp": 8, "global_batch_size": 64})", 10 + 24.0 / 8 + kAttention / 8},
      {R"({"tp": 8, "sequence_parallel": true, "global_batch_size": 64})", 34.0 / 8 + kAttention / 8},
      {R"({"tp": 8, "recompute": "selective", "global_batch_size": 64})", 10 + 24.0 / 8},
      {R"({"tp": 8, "sequence_parallel": true, "recompute": "selective", "global_batch_size": 64})", 34.0 / 8},
      {R"({"tp": 4, "micro_batch_size": 2, "global_batch_size": 64})", 10 + 24.0 / 4 + kAttention / 4},
  };
  for (const ActivationCase& item : cases) {
    const Job job = job_from(gpt3_job(item.layout));
    const double sbh = 2048.0 * job.layout.micro_batch_size * 12288.0;
    const auto operators = block_operators(job.model, job.layout, job.training, BlockKind::kDense);
    const Bytes saved = job.layout.recompute == Recompute::kNone
                            ? saved_activation(operators)
                            : saved_selectively(operators, job.layout, job.training.stack);
    EXPECT_NEAR(saved.value() / sbh, item.expected_per_sbh, 1e-9) << item.layout;
  }
}

TEST(Operators, FlashAttentionKeepsNoScores) {
  const std::string text =
      R"({"model": "gpt3-175b", "cluster": "8xdgx-a100-80g", "layout": {"dp": 64, "global_batch_size": 64}})";
  const Job job = job_from(text);
  ASSERT_TRUE(job.training.flash_attention);
  const double sbh = 2048.0 * 12288.0;
  const double log_sums = 4.0 * 96 * 2048;  // one fp32 per head and token
  const auto operators = block_operators(job.model, job.layout, job.training, BlockKind::kDense);
  EXPECT_NEAR(saved_activation(operators).value(), 34 * sbh + log_sums, 1.0);
  EXPECT_NEAR(saved_selectively(operators, job.layout, job.training.stack).value(), 34 * sbh, 1.0);
}

// Pairs of query and key, counted explicitly.
TEST(Operators, WindowsCostWhatTheirPairsAre) {
  Transformer model;
  model.layers = 4;
  model.windowed_layers = 3;
  const auto pairs = [](int sequence, int window, int chunk) {
    double found = 0;
    for (int query = 0; query < sequence; ++query) {
      for (int key = 0; key <= query; ++key) {
        const bool seen = (window == 0 || query - key < window) && (chunk == 0 || query / chunk == key / chunk);
        // Half of the diagonal, consistent with causal attention's s²/2.
        if (seen) found += query == key ? 0.5 : 1.0;
      }
    }
    return found;
  };
  for (const auto& [window, chunk] : {std::pair{0, 0}, {96, 0}, {1024, 0}, {0, 96}, {0, 128}, {0, 1024}}) {
    model.sliding_window = window;
    model.attention_chunk = chunk;
    constexpr int kSequence = 512;
    const double whole = pairs(kSequence, 0, 0);
    const double expected = (3 * pairs(kSequence, window, chunk) + whole) / (4 * whole);
    // The last token of the window counts fully here, but half in the closed form.
    EXPECT_NEAR(model.attended_share(kSequence), expected, 0.002) << window << " " << chunk;
  }
}

TEST(Operators, FusedAttentionSkipsWhatAWindowHides) {
  const std::string text = R"({"model": {"layers": 4, "hidden": 64, "heads": 4, "vocab": 1000, "sequence_length": 1024,
    "sliding_window": 256, "windowed_layers": 2}, "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})";
  Job job = job_from(text);
  const auto attention = [&job] {
    for (const Operator& op : block_operators(job.model, job.layout, job.training, BlockKind::kDense)) {
      if (op.kind == OperatorKind::kFusedAttention) return op.attention_flops.value();
    }
    return 0.0;
  };
  const double with_window = attention();
  job.model.windowed_layers = 0;
  EXPECT_NEAR(with_window / attention(), (1 + 0.25 * 1.75) / 2, 1e-12);
  EXPECT_EQ(attention(), 4.0 * 1024 * 1024 * 64 / 2);
}

TEST(Operators, ParallelBlocksAddOnce) {
  const auto job_of = [](const char* more) {
    return job_from(fmt::format(R"({{"model": {{"layers": 4, "hidden": 64, "heads": 4, "vocab": 1000,
      "sequence_length": 1024{}}}, "cluster": "dgx-h100", "layout": {{"global_batch_size": 8}}}})",
                                more));
  };
  const auto parameters = [](const Job& job) {
    double sum = 0;
    for (const Operator& op : block_operators(job.model, job.layout, job.training, BlockKind::kDense))
      sum += op.parameters;
    EXPECT_EQ(sum, static_cast<double>(count_parameters(job.model).block));
    return sum;
  };
  const double sequential = parameters(job_of(""));
  EXPECT_EQ(parameters(job_of(R"(, "block": "parallel")")), sequential);
  EXPECT_EQ(parameters(job_of(R"(, "block": "parallel_one_norm")")), sequential - 2 * 64);
  EXPECT_EQ(parameters(job_of(R"(, "post_norms": true)")), sequential + 4 * 64);
  const auto bytes = [](const Job& job) {
    double sum = 0;
    for (const Operator& op : block_operators(job.model, job.layout, job.training, BlockKind::kDense))
      sum += op.forward_bytes.value();
    return sum;
  };
  EXPECT_LT(bytes(job_of(R"(, "block": "parallel")")), bytes(job_of("")));
}

// 72BLsh²(1 + s/6h + V/12hL), Narayanan et al. 2104.04473 eq. 3 without recomputation.
TEST(Operators, ModelFlopsFollowNarayanan) {
  for (const char* layout :
       {R"({"tp": 8, "pp": 8, "global_batch_size": 64})", R"({"tp": 4, "pp": 2, "global_batch_size": 64})"}) {
    const Job job = job_from(gpt3_job(layout));
    const double vocab = padded_vocab(job.model.vocab, 128, job.layout.tp);
    const double h = 12288;
    const double s = 2048;
    const double layers = 96;
    const double expected = 72 * 64 * layers * s * h * h * (1 + s / (6 * h) + vocab / (12 * h * layers));
    EXPECT_NEAR(model_flops_per_step(job).value() / expected, 1.0, 1e-9) << layout;
  }
}

TEST(Operators, ShardedWorkAddsUpToTheWhole) {
  const Job whole = job_from(gpt3_job(R"({"dp": 64, "global_batch_size": 64})"));
  const Job sharded = job_from(gpt3_job(R"({"tp": 8, "sequence_parallel": true, "global_batch_size": 64})"));
  double whole_flops = 0;
  double sharded_flops = 0;
  double whole_bytes = 0;
  double sharded_bytes = 0;
  for (const Operator& op : block_operators(whole.model, whole.layout, whole.training, BlockKind::kDense)) {
    whole_flops += forward_flops(op).value();
    whole_bytes += op.forward_bytes.value();
  }
  for (const Operator& op : block_operators(sharded.model, sharded.layout, sharded.training, BlockKind::kDense)) {
    sharded_flops += forward_flops(op).value();
    sharded_bytes += op.forward_bytes.value();
  }
  EXPECT_DOUBLE_EQ(sharded_flops * 8, whole_flops);
  EXPECT_DOUBLE_EQ(sharded_bytes * 8, whole_bytes);
}

// Halved causal attention: 6·12Lh² per token for the GEMMs stay, 12Lsh for the scores become 6Lsh (PaLM 2204.02311,
// appendix B; FlashAttention-2 2307.08691 §4.1).
TEST(Operators, CausalFlopsHalveAttention) {
  for (const char* attention : {"flash", "unfused"}) {
    const Job job = job_from(R"({"model": "gpt3-175b", "cluster": "8xdgx-a100-80g", "training": {"attention": ")" +
                             std::string(attention) + R"("}, "layout": {"tp": 8, "pp": 8, "global_batch_size": 64}})");
    const double full = model_flops_per_step(job).value();
    const double causal = model_flops_per_step(job, AttentionFlops::kCausal).value();
    const double tokens = 64.0 * 2048;
    EXPECT_NEAR((full - causal) / (tokens * 6 * 96 * 2048 * 12288), 1.0, 1e-9) << attention;
  }
}

// Selective recomputation by operator keeps a block's input (2h bytes per token), half of the outputs of its GEMMs (qkv
// 6144, output 4096, up 2 · 14336, down 4096 columns) and attention's output and log-sums.
TEST(Operators, RecomputingEverySecondProductKeepsTheOthers) {
  const Job job = job_from(R"({"model": "llama3-8b", "cluster": "dgx-h100", "training": {"stack": "torchtitan"},
    "layout": {"data_parallel": "fsdp", "recompute": "selective", "global_batch_size": 8}})");
  const auto operators = block_operators(job.model, job.layout, job.training, BlockKind::kDense);
  const double columns = 6144 + 4096 + 2 * 14336 + 4096;
  const double of_token = 2 * 4096 + columns / 2 * 2 + 2 * 4096 + 4 * 32;
  EXPECT_NEAR(saved_selectively(operators, job.layout, job.training.stack).value() / 8192, of_token, 1e-6);
}

// Bytes per token of one block that each module drops: the norms' outputs (2h each), an MLP's activation and its input
// (3 columns of 16 bits, the norm's output stays), flash attention's log-sums; and the FLOPs of recomputed GEMMs.
TEST(Operators, RecomputedModulesDropWhatTheyRebuild) {
  const auto dropped = [](const std::string& model, const std::string& modules, double* flops) {
    const Job job =
        job_from(R"({"model": ")" + model + R"(", "cluster": "dgx-h100", "training": {"stack": "megatron-core"},
      "layout": {"recompute": "selective", "recompute_modules": )" +
                 modules + R"(, "global_batch_size": 8}})");
    const BlockKind kind = job.model.experts ? BlockKind::kExperts : BlockKind::kDense;
    const auto operators = block_operators(job.model, job.layout, job.training, kind);
    *flops = 0.0;
    for (const Operator& op : operators) {
      *flops += (forward_flops(op) * redone_selectively(op, job.layout, job.training.stack)).value();
    }
    const Bytes kept = saved_selectively(operators, job.layout, job.training.stack);
    EXPECT_NEAR(kept.value() + rebuilt_selectively(operators, job.layout).value(), saved_activation(operators).value(),
                1.0);
    *flops /= job.training.sequence_length;
    return rebuilt_selectively(operators, job.layout).value() / job.training.sequence_length;
  };
  double flops = 0.0;
  EXPECT_NEAR(dropped("llama3-8b", R"(["layernorm"])", &flops), 2 * 2 * 4096, 1e-6);
  EXPECT_EQ(flops, 0.0);
  EXPECT_NEAR(dropped("llama3-8b", R"(["core_attn"])", &flops), 4 * 32, 1e-6);
  EXPECT_NEAR(flops, 4.0 * 8192 * 4096, 1.0);
  EXPECT_NEAR(dropped("llama3-8b", R"(["mlp"])", &flops), 2 * 3 * 14336, 1e-6);
  EXPECT_NEAR(flops, 2.0 * 3 * 14336 * 4096, 1.0);
  EXPECT_NEAR(dropped("llama3-8b", R"(["mlp", "layernorm", "core_attn"])", &flops), 2 * 3 * 14336 + 4 * 4096 + 4 * 32,
              1e-6);
  EXPECT_EQ(dropped("llama3-8b", R"(["moe", "moe_act", "shared_experts", "mla_up_proj"])", &flops), 0.0);
  EXPECT_EQ(flops, 0.0);
  // Two experts per token: the inputs of their second GEMMs.
  EXPECT_NEAR(dropped("mixtral-8x7b", R"(["moe_act"])", &flops), 2 * 2 * 14336, 1e-6);
  EXPECT_EQ(flops, 0.0);
  EXPECT_GT(dropped("mixtral-8x7b", R"(["moe"])", &flops), 2 * 2 * (3 * 14336 + 4096));
  EXPECT_NEAR(flops, 2.0 * (2 * 3 * 14336 + 8) * 4096, 1.0);
  // Latent attention: queries, keys and values of 128 heads, rebuilt from 1536 and 512 numbers.
  EXPECT_NEAR(dropped("deepseek-v3", R"(["mla_up_proj"])", &flops), 2 * 128 * (192 + 192 + 128), 1e-6);
  EXPECT_NEAR(flops, 2.0 * 128 * (1536 * 192 + 512 * 256), 1.0);
  EXPECT_NEAR(dropped("deepseek-v3", R"(["shared_experts"])", &flops), 2 * 3 * 2048, 1e-6);
}

// An eager RMSNorm keeps its input in fp32 and the scaled result in 16 bits; an eager SwiGLU keeps the activated gate.
TEST(Operators, EagerOperatorsKeepMore) {
  const auto saved = [](const char* fused) {
    const Job job = job_from(R"({"model": "llama3-8b", "cluster": "dgx-h100", "training": {"stack": "nanotron",
      "fused": )" + std::string(fused) +
                             R"(}, "layout": {"global_batch_size": 8}})");
    const auto operators = block_operators(job.model, job.layout, job.training, BlockKind::kDense);
    return saved_activation(operators).value() / job.training.sequence_length;
  };
  EXPECT_NEAR(saved("[]") - saved(R"(["norm", "activation"])"), 2 * 4 * 4096 + 2 * 14336, 1e-6);
}

TEST(Operators, HostTimesOfCollectivesAddUp) {
  const auto layer = [](const char* keys) {
    const Job job = job_from(R"({"model": "gpt2-124m", "cluster": {"name": "p5", "nodes": 2, "hop_latency": "1ms"},
      "training": {"stack": {"name": "nanotron", "host_time_per_kernel": "1ms", "host_time_per_collective": "100ms")" +
                             std::string(keys) + R"(}},
      "layout": {"tp": 4, "pp": 4, "sequence_parallel": true, "global_batch_size": 64}})");
    StageMap map;
    map.rank_of_stage = {0, 1, 2, 3};
    map.model_stages = 4;
    const StepCosts costs = price_step(job, map, {3, 3, 3, 3});
    const StageCosts& inner = costs.stages[1];
    return (inner.forward.total() + inner.input_gradient.total() + inner.weight_gradient.total()).value() / 3;
  };
  // Ten collectives per layer and microbatch, four ranks; pipeline neighbours are on two nodes.
  const double without = layer(R"(, "collective_stall": "0s")");
  EXPECT_NEAR(layer(R"(, "collective_stall": "50ms")") - without, 10 * 4 * 50e-3, 1e-3);
  EXPECT_GT(without, 10 * 100e-3);
}

// 98 tensors in 16 layers, embedding and head, 16 at a time: 5 1/8 additional latencies of a ring over 16 nodes.
TEST(Operators, GathersOfEachParameterAddTheirLatencies) {
  const auto gather = [](const char* each, const char* hop) {
    const Job job = job_from(
        std::string(
            R"({"model": {"name": "llama3-8b", "layers": 16}, "cluster": {"name": "p5", "nodes": 16, "hop_latency": ")") +
        hop + R"("}, "training": {"stack": {"name": "nanotron", "gathers_each_parameter": )" + each +
        R"(}}, "layout": {"zero": 1, "global_batch_size": 256}})");
    StageMap map;
    map.rank_of_stage = {0};
    map.model_stages = 1;
    return price_step(job, map, {job.model.layers}).ranks.front().parameter_gather.value();
  };
  const double latency_at_once = gather("false", "2ms") - gather("false", "1ms");
  const double latency_of_each = gather("true", "2ms") - gather("true", "1ms");
  EXPECT_NEAR(latency_at_once, 15 * 1e-3, 1e-6);
  EXPECT_NEAR(latency_of_each / latency_at_once, 98.0 / 16.0, 0.3);
}

}  // namespace
}  // namespace flopcast
