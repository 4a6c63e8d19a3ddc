#include <gtest/gtest.h>

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "model/cost/compute.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/workload/operators.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

std::string tuned(const std::string& finetune, const std::string& layout = R"({"global_batch_size": 8})",
                  const std::string& more = "") {
  return fmt::format(R"({{"model": "llama2-7b", "cluster": "1xdgx-a100-80g", "layout": {},
                         "training": {{"sequence_length": 1024, "finetune": {}{}}}}})",
                     layout, finetune, more);
}

StageCosts whole_model(const Job& job) {
  StageMap map;
  map.rank_of_stage = {0};
  return price_step(job, map, {job.model.layers}).stages.front();
}

double trained(const StageCosts& costs) {
  return costs.parameters - costs.frozen.parameters;
}

// r·(inputs + outputs) for each linear layer (LoRA, 2106.09685 §4.1). PEFT prints 4,194,304 and 39,976,960 for Llama 2
// 7B with rank 8 on queries and values, and with rank 16 on all linear layers.
TEST(Finetune, AdaptersHoldRankTimesInputsAndOutputs) {
  const auto of = [](const std::string& finetune) { return trained(whole_model(job_from(tuned(finetune)))); };
  EXPECT_DOUBLE_EQ(of(R"({"method": "lora", "rank": 8, "targets": ["q_proj", "v_proj"]})"), 4194304.0);
  EXPECT_DOUBLE_EQ(of(R"({"method": "lora", "rank": 16, "targets": ["all"]})"), 39976960.0);
  EXPECT_DOUBLE_EQ(of(R"({"method": "qlora", "rank": 64})"), 4 * 39976960.0);
  // One adapter for fused queries, keys and values: r·(h + 3h).
  EXPECT_DOUBLE_EQ(of(R"({"method": "lora", "rank": 8, "targets": "linear_qkv"})"), 32.0 * 8 * (4096 + 3 * 4096));
}

// Frozen linear layers: 2 bytes per parameter, 8 bits, 4.5 bits, or 4.127 with double quantisation (QLoRA, 2305.14314
// §3). Embedding, head and norms stay in 16 bits.
TEST(Finetune, FrozenWeightsCountAsTheyAreStored) {
  const double linears = 32.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008);
  const double others = 2.0 * 32000 * 4096 + 65.0 * 4096;
  const auto bytes = [](const std::string& base) {
    return whole_model(job_from(tuned(fmt::format(R"({{"method": "lora", {}}})", base)))).frozen.weights.value();
  };
  EXPECT_DOUBLE_EQ(bytes(R"("base": "bf16")"), 2 * (linears + others));
  EXPECT_DOUBLE_EQ(bytes(R"("base": "int8")"), linears + 2 * others);
  EXPECT_DOUBLE_EQ(bytes(R"("base": "nf4")"), linears * 4.5 / 8 + 2 * others);
  EXPECT_NEAR(bytes(R"("base": "nf4", "double_quant": true)"), linears * 4.127 / 8 + 2 * others, linears * 1e-4);
}

TEST(Finetune, OnlyAdaptersHaveGradientsAndMoments) {
  const Job job = job_from(tuned(R"({"method": "qlora", "rank": 16})"));
  const StageCosts costs = whole_model(job);
  const ModelStates states = model_states(job.layout, job.training, costs.parameters, 0.0, costs.frozen);
  constexpr double kAdapters = 39976960.0;
  EXPECT_DOUBLE_EQ(states.weights.value(), costs.frozen.weights.value() + 2 * kAdapters);
  EXPECT_DOUBLE_EQ(states.gradients.value(), 4 * kAdapters);
  EXPECT_DOUBLE_EQ(states.optimizer.value(), 12 * kAdapters);
}

// Frozen linear layers have 4 of the 6 FLOPs per parameter and token: no weight gradient. The adapters have all 6.
TEST(Finetune, FrozenProductsHaveNoWeightGradient) {
  const Job full = job_from(tuned(R"("full")"));
  const Job lora = job_from(tuned(R"({"method": "lora", "rank": 16})"));
  const double linears = 32.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008) + 32000.0 * 4096;
  const double tokens = 8 * 1024.0;
  const double difference = model_flops_per_step(full).value() - model_flops_per_step(lora).value();
  EXPECT_NEAR(difference, tokens * (2 * linears - 6 * 39976960.0), 1e-9 * difference);
  EXPECT_EQ(job_from(tuned(R"("full")")).training.finetune, std::nullopt);
  const StageCosts priced = whole_model(lora);
  EXPECT_NEAR(priced.model_flops.value() * 8, model_flops_per_step(lora).value(), 1e-9 * difference);
  EXPECT_LT(priced.weight_gradient.total(), whole_model(full).weight_gradient.total() * 0.4);
  EXPECT_GT(priced.input_gradient.total(), whole_model(full).input_gradient.total());
}

// Only the last layers are trained: 2 FLOPs per parameter below them, where nothing has a gradient, 6 inside, 4 for the
// head.
TEST(Finetune, FrozenLayersBelowHaveNoBackwardPass) {
  const Job job = job_from(tuned(R"({"method": "freeze", "trainable_layers": 4})"));
  const StageCosts costs = whole_model(job);
  const double block = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008;
  EXPECT_DOUBLE_EQ(trained(costs), 4 * (block + 2 * 4096));
  const double scores = 2 * 1024.0 * 1024 * 4096 * 2;
  const double expected = 1024.0 * (block * (28 * 2 + 4 * 6) + 4 * 32000.0 * 4096) + scores * (28 + 4 * 3);
  EXPECT_NEAR(costs.model_flops.value(), expected, 1e-9 * expected);
  const double kept = whole_model(job_from(tuned(R"("full")"))).activation.value();
  EXPECT_LT(costs.activation.value(), kept * 0.25);

  // Only the first layers are trained: gradients pass through all others.
  const Job first = job_from(tuned(R"({"method": "freeze", "trainable_layers": -4})"));
  const StageCosts below = whole_model(first);
  EXPECT_DOUBLE_EQ(trained(below), trained(costs));
  const double through = 1024.0 * (block * (28 * 4 + 4 * 6) + 4 * 32000.0 * 4096) + scores * 32 * 3;
  EXPECT_NEAR(below.model_flops.value(), through, 1e-9 * through);
}

// The input of a frozen linear layer is kept only for its adapter, once for all adapters that share it; with dropout,
// each adapter keeps its own input and a mask.
TEST(Finetune, InputsAreKeptForAdapters) {
  const auto kept = [](const std::string& finetune) {
    return whole_model(job_from(tuned(finetune))).activation.value() / 32.0 / 1024.0;
  };
  const double queries = kept(R"({"method": "lora", "rank": 8, "targets": "q_proj"})");
  const double keys_too = kept(R"({"method": "lora", "rank": 8, "targets": ["q_proj", "k_proj"]})");
  EXPECT_DOUBLE_EQ(keys_too - queries, 2.0 * 8);
  const double dropped = kept(R"({"method": "lora", "rank": 8, "targets": "q_proj", "dropout": 0.1})");
  EXPECT_DOUBLE_EQ(dropped - queries, 4096.0);
  const double both = kept(R"({"method": "lora", "rank": 8, "targets": ["q_proj", "k_proj"], "dropout": 0.1})");
  EXPECT_DOUBLE_EQ(both - dropped, 3.0 * 4096 + 2.0 * 8);
  const double down = kept(R"({"method": "lora", "rank": 8, "targets": ["q_proj", "down_proj"]})");
  EXPECT_DOUBLE_EQ(down - queries, 2.0 * 11008 + 2.0 * 8);
}

// Each pass that multiplies with a quantised weight reads it and writes 2 bytes per parameter; 16-bit weights are in
// memory already.
TEST(Finetune, NarrowWeightsAreWidenedInEachPass) {
  const Job narrow = job_from(tuned(R"({"method": "lora", "rank": 8, "base": "nf4"})"));
  const Job wide = job_from(tuned(R"({"method": "lora", "rank": 8})"));
  const double linears = 32.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008);
  const Device& device = narrow.cluster.device;
  const double moved = linears * (2 + 4.5 / 8) / (device.memory_bandwidth.value() * device.memory_efficiency);
  const double launches = 32 * 4 * device.kernel_launch.value();
  const double longer = (whole_model(narrow).forward.total() - whole_model(wide).forward.total()).value();
  EXPECT_NEAR(longer, moved + launches, 1e-3 * moved);
  EXPECT_DOUBLE_EQ(whole_model(narrow).dequantised_weight.value(), 2.0 * 2 * 4096 * 11008);
  EXPECT_EQ(whole_model(wide).dequantised_weight.value(), 0.0);
}

// Sharded: each unit is gathered in its storage format, twice, and only adapters are scattered.
TEST(Finetune, ShardsTravelAsTheyAreStored) {
  const std::string sharded = R"({"data_parallel": "fsdp", "global_batch_size": 8})";
  const Job job = job_from(tuned(R"({"method": "qlora", "rank": 16})", sharded));
  const StageCosts costs = whole_model(job);
  const double adapters = 39976960.0;
  const double gathered = 2 * (costs.frozen.weights.value() + 2 * adapters);
  const double reduced = adapters * job.training.stack.reduced_gradient_bytes();
  EXPECT_NEAR(costs.sent.dp.sent_per_rank.value(), (gathered + reduced) * 7 / 8, 1.0);
  const ModelStates states = model_states(job.layout, job.training, costs.parameters, 0.0, costs.frozen);
  EXPECT_NEAR(states.weights.value(), (costs.frozen.weights.value() + 2 * adapters) / 8, 1.0);
}

TEST(Finetune, ReplicasReduceAdaptersAlone) {
  const Job job = job_from(tuned(R"({"method": "lora", "rank": 16})"));
  StageMap map;
  map.rank_of_stage = {0};
  const StepCosts costs = price_step(job, map, {job.model.layers});
  const double reduced = 39976960.0 * job.training.stack.reduced_gradient_bytes() * 2 * 7 / 8;
  EXPECT_NEAR(costs.ranks.front().dp.sent_per_rank.value(), reduced, 1.0);
}

TEST(Finetune, ComplaintsNameTheKey) {
  const auto about = [](const std::string& finetune) { return error_report(tuned(finetune)); };
  EXPECT_EQ(about(R"("lora2")").field, "training.finetune.method");
  EXPECT_EQ(about(R"({"method": "lora", "targets": ["q_prj"]})").field, "training.finetune.targets");
  EXPECT_EQ(about(R"({"method": "qlora", "base": "bf16"})").field, "training.finetune.base");
  EXPECT_EQ(about(R"({"method": "lora", "base": "int8", "double_quant": true})").field,
            "training.finetune.double_quant");
  EXPECT_EQ(about(R"({"method": "lora", "trainable_layers": 2})").field, "training.finetune.trainable_layers");
  EXPECT_EQ(about(R"({"method": "freeze", "rank": 2})").field, "training.finetune.rank");
  EXPECT_EQ(about(R"({"method": "freeze", "trainable_layers": 33})").field, "training.finetune.trainable_layers");
  EXPECT_EQ(about(R"({"method": "full", "rank": 2})").field, "training.finetune.rank");
  EXPECT_EQ(about(R"({"method": "lora", "targets": ["linear_qkv", "q_proj"]})").field, "training.finetune.targets");
  EXPECT_EQ(about("3").field, "training.finetune");
}

std::string lora_in_8_bits(const std::string& cluster, const std::string& more = "") {
  return fmt::format(
      R"({{"model": "llama2-7b", "cluster": "{}", "layout": {{"global_batch_size": 8}}, "training": {{
          "sequence_length": 4096, "precision": "fp8", "fp8_recipe": "delayed", "stack": "nemo@25.04",
          "finetune": {{"method": "lora", "rank": 16, "targets": "linear_qkv", "base": "fp8"}}{}}}}})",
      cluster, more);
}

double linears_of_llama2_7b() {
  return 32.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008);
}

// One byte is read and one written per frozen weight and microbatch, except on Blackwell, which multiplies weights as
// stored.
TEST(Finetune, HopperTransposesWeightsInEightBits) {
  const auto added = [](const std::string& cluster) {
    const Job job = job_from(lora_in_8_bits(cluster));
    Job narrow = job;
    narrow.training.finetune->base = BaseFormat::kBf16;
    // With 16-bit storage, a frozen weight goes through the same casts but is not transposed.
    return whole_model(job).input_gradient.compute.value() - whole_model(narrow).input_gradient.compute.value();
  };
  const Device h100 = job_from(lora_in_8_bits("1xdgx-h100")).cluster.device;
  const double expected = 2 * linears_of_llama2_7b() / (h100.memory_bandwidth.value() * h100.memory_efficiency);
  const double kernels = 32 * 4 * h100.kernel_launch.value();
  EXPECT_NEAR(added("1xdgx-h100"), expected + kernels, 1e-3 * expected);  // the host adds a little
  EXPECT_DOUBLE_EQ(added("1xdgx-b200"), 0.0);
}

TEST(Finetune, AttentionInEightBitsIsFasterByWhatWasMeasured) {
  const auto forward = [](const std::string& more) {
    return whole_model(job_from(lora_in_8_bits("1xdgx-h200", more))).forward.compute.value();
  };
  const double saved = forward("") - forward(R"(, "fp8_attention": true)");
  const Device h200 = job_from(lora_in_8_bits("1xdgx-h200")).cluster.device;
  const double flops = 32 * 4.0 * 4096 * 4096 * 4096 / 2;
  const double wide =
      flops / (h200.peak_of(Precision::kBf16).value() * h200.flash_forward_efficiency * h200.clock_under_limit());
  EXPECT_NEAR(saved, wide * (1 - 1 / 1.24), 1e-3 * wide);
}

TEST(Finetune, ActivationsAreKeptInEightBitsWhereAsked) {
  const auto kept = [](const std::string& more) {
    return whole_model(job_from(lora_in_8_bits("1xdgx-b200", more))).activation.value();
  };
  EXPECT_DOUBLE_EQ(kept("") - kept(R"(, "fp8_activations": true)"), 32 * 4096.0 * 2 * 11008);
}

TEST(Finetune, FusedCastsCostNothingOfTheirOwn) {
  const auto backward = [](const std::string& more) {
    return whole_model(job_from(lora_in_8_bits("1xdgx-b200", more))).input_gradient.compute.value();
  };
  const double saved = backward("") - backward(R"(, "fused": ["norm", "rotary", "activation", "casts"])");
  const Device b200 = job_from(lora_in_8_bits("1xdgx-b200")).cluster.device;
  // 3 of 4 bytes per element of each linear layer's output; frozen layers need one direction: 0.75.
  const double columns = 3 * 4096 + 4096 + 2 * 11008 + 4096;
  const double bytes = 32 * 4096 * columns * 3 * 0.75;
  EXPECT_NEAR(saved, bytes / (b200.memory_bandwidth.value() * b200.memory_efficiency), 1e-2 * saved);
}

// GEMMs with 4-bit operands take the time at their own peak, if the device has one.
TEST(Finetune, FourBitsMultiplyAtTheirOwnPeak) {
  const Job job = job_from(lora_in_8_bits("1xdgx-b200"));
  const GemmShape shape{8192, 8192, 8192, 1};
  const auto time = [&](Device device, Fp8Recipe recipe) {
    device.gemm_kernel.memory_efficiency = 1e9;
    device.kernel_launch = Seconds(0);
    return ComputeModel(device, Precision::kFp8, job.training.stack, recipe).gemm(shape, 0.0, true).value();
  };
  const Device& b200 = job.cluster.device;
  EXPECT_NEAR(time(b200, Fp8Recipe::kMxfp8) / time(b200, Fp8Recipe::kNvfp4), 2.0, 1e-9);
  Device of_its_own = b200;
  of_its_own.gemm_efficiency_fp4 = b200.gemm_efficiency_of(Precision::kFp8) / 2.0;
  EXPECT_NEAR(time(of_its_own, Fp8Recipe::kMxfp8) / time(of_its_own, Fp8Recipe::kNvfp4), 1.0, 1e-9)
      << "half the efficiency at twice the peak";
  EXPECT_DOUBLE_EQ(time(of_its_own, Fp8Recipe::kMxfp8), time(b200, Fp8Recipe::kMxfp8));
  Device without = of_its_own;
  without.peak_fp4 = FlopsPerSecond(0.0);
  EXPECT_DOUBLE_EQ(time(without, Fp8Recipe::kMxfp8), time(without, Fp8Recipe::kNvfp4));
}

// Libraries before 25.04 were not optimised for Blackwell.
TEST(Finetune, EarlyLibrariesMultiplySlowerOnBlackwellAlone) {
  const auto share = [](const std::string& cluster, const std::string& release) {
    std::string text = lora_in_8_bits(cluster);
    text.replace(text.find("nemo@25.04"), 10, release);
    const Job job = job_from(text);
    return ComputeModel(job.cluster.device, Precision::kFp8, job.training.stack, Fp8Recipe::kDelayed)
        .gemm({8192, 8192, 8192, 1}, 0.0, true)
        .value();
  };
  EXPECT_GT(share("1xdgx-b200", "nemo@24.09"), 1.1 * share("1xdgx-b200", "nemo@25.04"));
  EXPECT_DOUBLE_EQ(share("1xdgx-h100", "nemo@24.09"), share("1xdgx-h100", "nemo@25.04"));
}

// In addition to the fp32 weight: two fp32 moments; one; two of 8 bits with an fp32 scale per 256; a negligible state.
TEST(Optimizers, KeepTheStatesOfTheirPapers) {
  Training training;
  const auto bytes = [&training](Optimizer optimizer) {
    training.optimizer = optimizer;
    return optimizer_bytes_per_parameter(training);
  };
  EXPECT_DOUBLE_EQ(bytes(Optimizer::kAdam), 12.0);
  EXPECT_DOUBLE_EQ(bytes(Optimizer::kSgd), 8.0);
  EXPECT_DOUBLE_EQ(bytes(Optimizer::kLion), 8.0);
  EXPECT_DOUBLE_EQ(bytes(Optimizer::kAdam8Bit), 4.0 + 2.0 + 8.0 / 256);
  EXPECT_DOUBLE_EQ(bytes(Optimizer::kAdafactor), 4.0);
  training.master_weights = false;
  EXPECT_DOUBLE_EQ(bytes(Optimizer::kAdam), 8.0);
}

constexpr double kMatrices = 32.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008);  // of the blocks of Llama 2 7B
constexpr double kOthers = 2.0 * 32000 * 4096 + 65.0 * 4096;

ModelStates states_of(const Job& job) {
  const StageCosts costs = whole_model(job);
  return model_states(job.layout, job.training, costs.parameters, 0.0, costs.frozen, &costs.matrices);
}

// One moment for matrices, two for embedding, head and norms (2502.16982 §2.2).
TEST(Optimizers, MuonKeepsOneMomentOfMatrices) {
  const auto optimizer = [](const std::string& zero) {
    return states_of(job_from(tuned(R"("full")", R"({"global_batch_size": 8, "zero": )" + zero + "}",
                                    R"(, "optimizer": "muon")")))
        .optimizer.value();
  };
  const double whole = 4 * (kMatrices + kOthers) + 4 * kMatrices + 8 * kOthers;
  EXPECT_NEAR(optimizer("0"), whole, 1.0);
  EXPECT_NEAR(optimizer("1"), whole / 8, 1.0);
}

// Moments of r x n instead of m x n, plus the projection (2403.03507 Table 1): a matrix of 4096 x 11008 has two of 128
// x 11008 and one of 4096 x 128.
TEST(Optimizers, GaloreKeepsMomentsOfTheProjectedGradient) {
  const auto states = [](const std::string& rank) {
    return states_of(job_from(
        tuned(R"("full")", R"({"global_batch_size": 8})", R"(, "optimizer": "galore", "optimizer_rank": )" + rank)));
  };
  const double projected = 32.0 * 128 * (4.0 * 4096 + 3.0 * 11008);
  const double projections = 32.0 * 128 * (7.0 * 4096);
  // Queries, keys and values are one matrix, as are gate and up.
  const double fused = 32.0 * 128 * (3.0 - 1.0 + 2.0 - 1.0) * 4096;
  EXPECT_NEAR(states("128").optimizer.value(),
              4 * (kMatrices + kOthers) + 8 * (kOthers + projected) + 2 * (projections - fused), 1.0);
  EXPECT_LT(states("16").optimizer, states("128").optimizer);
}

// Newton-Schulz: five times X·Xᵀ, its square and a product with X, for each matrix; distributed like the optimizer
// states.
TEST(Optimizers, MuonMultipliesEachMatrixFifteenTimes) {
  const auto update = [](const std::string& optimizer, const std::string& zero) {
    const Job job = job_from(tuned(R"("full")", R"({"global_batch_size": 8, "zero": )" + zero + "}",
                                   R"(, "optimizer": ")" + optimizer + "\""));
    StageMap map;
    map.rank_of_stage = {0};
    return price_step(job, map, {job.model.layers}).ranks.front().optimizer.value();
  };
  const Job job = job_from(tuned(R"("full")"));
  const ComputeModel compute(job.cluster.device, job.training.precision, job.training.stack);
  const auto product = [&compute](int m, int n, int k) { return compute.gemm({m, n, k, 1}, 2.0).value(); };
  const auto of = [&product](int m, int n) { return 5 * (product(m, m, n) + product(m, m, m) + product(m, n, m)); };
  const double products = 32 * (of(4096, 3 * 4096) + of(4096, 4096) + of(4096, 2 * 11008) + of(4096, 11008));
  // The update itself reads and writes one moment less than Adam's.
  const double moved = update("adam", "0") - update("lion", "0");
  EXPECT_NEAR(update("muon", "0"), update("lion", "0") + moved * kOthers / (kMatrices + kOthers) + products,
              1e-3 * products);
  EXPECT_NEAR(update("muon", "1") / update("muon", "0"), 1.0 / 8, 1e-3);
}

// Each of eight expert-parallel ranks multiplies its own experts and cannot share the work: it takes as long as one
// rank with all experts, shared by eight replicas.
TEST(Optimizers, MuonsExpertsAreSharedByTheReplicasThatHoldThem) {
  const auto update = [](const std::string& optimizer, int ep) {
    const Job job = job_from(fmt::format(
        R"({{"model": "mixtral-8x7b", "cluster": "dgx-h100", "training": {{"optimizer": "{}", "sequence_length": 2048}},
        "layout": {{"ep": {}, "zero": 1, "global_batch_size": 8}}}})",
        optimizer, ep));
    StageMap map;
    map.rank_of_stage = {0};
    return price_step(job, map, {job.model.layers}).ranks.front().optimizer.value();
  };
  const double apart = update("muon", 8) - update("lion", 8);
  const double shared = update("muon", 1) - update("lion", 1);
  EXPECT_NEAR(apart / shared, 1.0, 0.1);
}

// ms-swift, examples/megatron/muon.sh: Qwen2.5 7B on two GPUs with tp 2 takes 65 GiB each with Muon, 78 with Adam.
TEST(Optimizers, MuonTakesWhatSwiftMeasuredLessThanAdam) {
  const auto optimizer = [](const std::string& name) {
    return states_of(job_from(R"({"model": "qwen2.5-7b", "cluster": {"name": "dgx-a100-80g", "nodes": [{"devices": 2}]},
        "layout": {"tp": 2, "micro_batch_size": 16, "global_batch_size": 16}, "training": {"sequence_length": 2048,
        "optimizer": ")" + name +
                              "\"}}"))
        .optimizer.value();
  };
  constexpr double kGib = 1024.0 * 1024 * 1024;
  EXPECT_NEAR((optimizer("adam") - optimizer("muon")) / kGib, 78.0 - 65.0, 1.5);
}

// LLaMA-Factory, README.md, hardware requirements: 18 GB per billion parameters in bf16 or fp16, 8 GB in pure_bf16.
TEST(Optimizers, StatesAreThoseOfLlamaFactorysTable) {
  const auto bytes = [](const std::string& more) {
    const Job job = job_from(tuned(R"("full")", R"({"global_batch_size": 8})", R"(, "stack": "pytorch-ddp")" + more));
    return states_of(job).total().value() / (kMatrices + kOthers);
  };
  EXPECT_NEAR(bytes(""), 18.0, 1e-6);
  EXPECT_NEAR(bytes(R"(, "master_weights": false)"), 8.0, 1e-6);
}

TEST(Optimizers, OfMatricesRefuseWhatIsNotTheirs) {
  const Diagnostic rank = error_report(tuned(R"("full")", R"({"global_batch_size": 8})", R"(, "optimizer_rank": 4)"));
  EXPECT_EQ(rank.field, "training.optimizer_rank");
}

StageCosts preferred(const std::string& finetune, const std::string& preference, const std::string& samples = "1") {
  const std::string more = preference.empty() ? "" : R"(, "preference": )" + preference;
  return whole_model(
      job_from(tuned(finetune, R"({"global_batch_size": 16, "micro_batch_size": )" + samples + "}", more)));
}

// A pair is two sequences; each also makes a forward pass through a reference model that keeps nothing.
TEST(Preferences, ReferencesPassForwardAndKeepNothing) {
  const StageCosts plain = preferred(R"("full")", "", "2");
  const StageCosts dpo = preferred(R"("full")", R"("dpo")");
  EXPECT_NEAR(dpo.forward.total() / plain.forward.total(), 2.0, 1e-12);
  EXPECT_EQ(dpo.input_gradient.total(), plain.input_gradient.total());
  EXPECT_EQ(dpo.activation, plain.activation);
  EXPECT_NEAR(dpo.model_flops / plain.model_flops, 4.0 / 3.0, 1e-3);
  const StageCosts alone = preferred(R"("full")", R"({"method": "dpo", "reference": false})");
  EXPECT_EQ(alone.forward.total(), plain.forward.total());
  EXPECT_EQ(preferred(R"("full")", R"("simpo")").forward.total(), plain.forward.total());
  // Two sequences through the reference, and one forward pass through the model itself.
  const StageCosts one = preferred(R"("full")", "");
  EXPECT_NEAR(preferred(R"("full")", R"("kto")").forward.total() / one.forward.total(), 4.0, 1e-12);
  EXPECT_NEAR(preferred(R"("full")", R"("grpo")").forward.total() / one.forward.total(), 2.0, 1e-12);
}

TEST(Preferences, AdaptersAreSwitchedOffForTheReference) {
  const StageCosts lora = preferred(R"("lora")", "", "2");
  const StageCosts dpo = preferred(R"("lora")", R"("dpo")");
  const StageCosts full = preferred(R"("full")", "", "2");
  EXPECT_NEAR((dpo.forward.total() - lora.forward.total()) / full.forward.total(), 1.0, 0.02);
  EXPECT_LT(dpo.forward.total(), lora.forward.total() * 2.0);
}

TEST(Preferences, ReferencesOfWholeModelsAreCopies) {
  const auto weights = [](const std::string& finetune, const std::string& preference, const std::string& zero) {
    return states_of(job_from(tuned(finetune, R"({"global_batch_size": 16, "zero": )" + zero + "}",
                                    R"(, "preference": )" + preference)))
        .weights.value();
  };
  constexpr double kCopy = 2 * (kMatrices + kOthers);
  EXPECT_NEAR(weights(R"("full")", R"("dpo")", "0") - weights(R"("full")", R"("orpo")", "0"), kCopy, 1.0);
  EXPECT_NEAR(weights(R"("full")", R"("dpo")", "3") - weights(R"("full")", R"("orpo")", "3"), kCopy / 8, 1.0);
  EXPECT_EQ(weights(R"("lora")", R"("dpo")", "0"), weights(R"("lora")", R"("orpo")", "0"));
}

TEST(Preferences, RewardModelsHaveOneScore) {
  const double score = preferred(R"("full")", R"("reward")").parameters;
  EXPECT_DOUBLE_EQ(preferred(R"("full")", "").parameters - score, (32000.0 - 1.0) * 4096);
}

TEST(Preferences, ComplaintsNameMethodAndReference) {
  const auto field = [](const std::string& preference) {
    return error_report(tuned(R"("full")", R"({"global_batch_size": 8})", R"(, "preference": )" + preference)).field;
  };
  EXPECT_EQ(field(R"("rlhf")"), "training.preference.method");
  EXPECT_EQ(field("3"), "training.preference");
  EXPECT_EQ(field(R"({"method": "simpo", "reference": true})"), "training.preference.reference");
  EXPECT_EQ(field(R"({"reference": false})"), "training.preference.method") << "no method is implied";
  EXPECT_EQ(field("null"), "") << "the same as an absent key";
}

// Explicit stack settings of a job are kept; fp32 gradients disappear together with fp32 weights.
TEST(Optimizers, MasterWeightsLeaveTheStacksOwnFigures) {
  const auto stack = [](const std::string& name) {
    return job_from(tuned(R"("full")", R"({"global_batch_size": 8})", R"(, "master_weights": false, "stack": )" + name))
        .training.stack;
  };
  EXPECT_DOUBLE_EQ(stack(R"("pytorch-ddp")").gradient_bytes, 2.0);
  EXPECT_DOUBLE_EQ(stack(R"({"name": "pytorch-ddp", "gradient_bytes": 4})").gradient_bytes, 4.0);
  EXPECT_DOUBLE_EQ(stack(R"("pytorch-ddp")").moment_bytes, 2.0);
  EXPECT_DOUBLE_EQ(stack(R"({"name": "pytorch-ddp", "moment_dtype": "fp32"})").moment_bytes, 4.0);
  EXPECT_DOUBLE_EQ(stack(R"("megatron-2021")").optimizer_gradient_bytes, 0.0);
  EXPECT_DOUBLE_EQ(stack(R"({"name": "megatron-2021", "optimizer_gradient_bytes": 4})").optimizer_gradient_bytes, 4.0);
  EXPECT_DOUBLE_EQ(job_from(tuned(R"("full")", R"({"global_batch_size": 8})", R"(, "stack": "megatron-2021")"))
                       .training.stack.optimizer_gradient_bytes,
                   4.0);
}

}  // namespace
}  // namespace flopcast
