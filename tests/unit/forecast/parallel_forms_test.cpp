// Data-parallel kinds, tensor grids, compression, offload and transports, from the job file to the forecast.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "model/cost/collectives.hpp"
#include "model/cost/data_parallel.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/lower/lower.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

// 64 GPUs in 8 nodes, a model of 36 layers and 1024 features.
std::string small_job(const std::string& layout, const std::string& stack = "deepspeed", const std::string& more = "") {
  return R"({"model": {"layers": 36, "hidden": 1024, "heads": 16, "vocab": 51200, "sequence_length": 1024},
             "cluster": {"name": "dgx-a100-80g", "nodes": 8}, "layout": {)" +
         layout + R"(}, "training": {"precision": "fp16", "stack": ")" + stack + "\"" + more + "}}";
}

Forecast forecast_of_job(const std::string& job) {
  return forecast(job_from(job), no_files);
}

double psi(const Forecast& answer) {
  return answer.step.costs.ranks.front().parameters;
}

TEST(DataParallel, VolumesAreThoseOfTheZeroPaper) {
  const double n = 64;
  const double bytes = 2.0;  // for weights and gradients
  const auto sent_over = [&](const char* layout) {
    const Forecast answer =
        forecast_of_job(small_job(std::string(R"("micro_batch_size": 1, "global_batch_size": 64, )") + layout));
    return answer.result.communication.dp.bytes_sent_per_rank / (psi(answer) * bytes * (n - 1) / n);
  };
  EXPECT_NEAR(sent_over(R"("zero": 0)"), 2.0, 1e-6);
  EXPECT_NEAR(sent_over(R"("zero": 1)"), 2.0, 1e-6);
  EXPECT_NEAR(sent_over(R"("zero": 2)"), 2.0, 1e-6);
  EXPECT_NEAR(sent_over(R"("zero": 3)"), 3.0, 1e-6);
  EXPECT_NEAR(sent_over(R"("data_parallel": "fsdp")"), 3.0, 1e-6);
  EXPECT_NEAR(sent_over(R"("data_parallel": "fsdp", "reshard_after_forward": false)"), 2.0, 1e-6);
  // Shards of 8: 3(F-1)/F inside, 2(R-1)/R/F across.
  EXPECT_NEAR(sent_over(R"("data_parallel": "hsdp", "shards": 8)") * (n - 1) / n, 3.0 * 7 / 8 + 2.0 * 7 / 8 / 8, 1e-6);
}

TEST(DataParallel, AccumulationReducesOnceExceptUnderZero2AndSharding) {
  const auto sent = [](const std::string& form, int batch) {
    return forecast_of_job(small_job(form + R"(, "global_batch_size": )" + std::to_string(batch)))
        .result.communication.dp.bytes_sent_per_rank;
  };
  EXPECT_NEAR(sent(R"("zero": 0)", 256) / sent(R"("zero": 0)", 64), 1.0, 1e-9);
  EXPECT_NEAR(sent(R"("zero": 1)", 256) / sent(R"("zero": 1)", 64), 1.0, 1e-9);
  EXPECT_NEAR(sent(R"("zero": 2)", 256) / sent(R"("zero": 2)", 64), (4.0 + 1.0) / 2.0, 1e-6);
  EXPECT_NEAR(sent(R"("zero": 3)", 256) / sent(R"("zero": 3)", 64), 4.0, 1e-6);
}

TEST(DataParallel, MemoryFollowsTheShards) {
  const auto memory = [](const std::string& form) {
    return forecast_of_job(small_job(form + R"(, "global_batch_size": 64)")).result.memory.per_pipeline_rank.front();
  };
  const RankMemoryResult whole = memory(R"("zero": 0)");
  const RankMemoryResult stage2 = memory(R"("zero": 2)");
  const RankMemoryResult stage3 = memory(R"("zero": 3)");
  const RankMemoryResult hybrid = memory(R"("data_parallel": "hsdp", "shards": 4)");
  EXPECT_NEAR(stage2.gradients_gib, whole.gradients_gib / 64, 1e-12);
  EXPECT_NEAR(stage2.weights_gib, whole.weights_gib, 1e-12);
  EXPECT_NEAR(stage3.weights_gib, whole.weights_gib / 64, 1e-12);
  EXPECT_NEAR(stage3.optimizer_gib, whole.optimizer_gib / 64, 1e-12);
  EXPECT_NEAR(hybrid.weights_gib, whole.weights_gib / 4, 1e-12);
  EXPECT_GT(stage3.workspace_gib, whole.workspace_gib);
  EXPECT_LT(stage3.total_gib, stage2.total_gib);
}

Forecast forecast_of_experts(const std::string& layout) {
  return forecast_of_job(R"({"model": "mixtral-8x7b", "cluster": {"name": "dgx-h100", "nodes": 8},
      "layout": {"global_batch_size": 64, )" +
                         layout + R"(}, "training": {"stack": "pytorch-ddp"}})");
}

// Two of the five layers per stage repeat their forward pass; all five would be full recomputation.
TEST(RecomputeLayers, CountPerStage) {
  const auto costs = [](const std::string& recompute) {
    return forecast_of_job(R"({"model": {"layers": 20, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 50000,
      "sequence_length": 2048}, "cluster": "dgx-a100-80g", "layout": {"tp": 2, "pp": 4, "dp": 1, "global_batch_size": 8, )" +
                           recompute + "}}")
        .step.costs.stages[1];
  };
  const StageCosts none = costs(R"("recompute": "none")");
  const StageCosts full = costs(R"("recompute": "full")");
  const StageCosts some = costs(R"("recompute": "full", "recompute_layers": 2)");
  EXPECT_NEAR(some.recompute.total() / full.recompute.total(), 0.4, 1e-12);
  EXPECT_NEAR(some.activation.value(), 0.4 * full.activation.value() + 0.6 * none.activation.value(), 1.0);
  EXPECT_EQ(some.recompute_buffer.value(), full.recompute_buffer.value());
  EXPECT_NEAR(some.recompute_flops.value() / full.recompute_flops.value(), 0.4, 1e-12);
  for (const char* all :
       {R"("recompute": "full", "recompute_layers": 5)", R"("recompute": "full", "recompute_layers": 99)"}) {
    EXPECT_EQ(costs(all).recompute.total().value(), full.recompute.total().value());
    EXPECT_EQ(costs(all).activation.value(), full.activation.value());
  }
}

TEST(RecomputeLayers, EveryNthLayerIsAsManyFirstOnes) {
  const auto cost = [](const std::string& recompute) {
    return forecast_of_job(R"({"model": {"layers": 20, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 50000,
      "sequence_length": 2048}, "cluster": "dgx-a100-80g", "layout": {"tp": 2, "pp": 4, "dp": 1, "global_batch_size": 8, )" +
                           recompute + "}}")
        .result;
  };
  const auto every = cost(R"("recompute": "full", "recompute_every": 2)");
  const auto first = cost(R"("recompute": "full", "recompute_layers": 2)");
  EXPECT_EQ(every.iteration.time_s, first.iteration.time_s);
  EXPECT_EQ(every.memory.peak_gib, first.memory.peak_gib);
  EXPECT_EQ(cost(R"("recompute": "full", "recompute_every": 1)").iteration.time_s,
            cost(R"("recompute": "full")").iteration.time_s);
  const auto message_of = [](const std::string& recompute) {
    return error_report(small_job(R"("global_batch_size": 64, )" + recompute)).field;
  };
  EXPECT_EQ(message_of(R"("recompute": "selective", "recompute_every": 2)"), "layout.recompute_every");
  EXPECT_EQ(message_of(R"("recompute": "full", "recompute_every": 2, "recompute_layers": 1)"),
            "layout.recompute_every");
}

// A sequence of 32,768 tokens over 8 ranks of one node.
StageCosts long_sequence(const std::string& layout, const std::string& training = "",
                         const std::string& stack = "megatron-core") {
  return forecast_of_job(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"cp": 8, "dp": 1,
      "global_batch_size": 1)" +
                         layout + R"(}, "training": {"sequence_length": 32768, "stack": ")" + stack + "\"" + training +
                         "}}")
      .step.costs.stages.front();
}

TEST(Context, WithoutZigzagTheLastRankHasMostOfTheWork) {
  const StageCosts balanced = long_sequence("");
  const StageCosts in_order = long_sequence(R"(, "zigzag": false)");
  const StageCosts packed = long_sequence("", R"(, "document_length": 4)");
  // Packing removes nearly all of attention's time; in order it takes 2 - 1/8 times as much.
  const double attention = (balanced.forward.compute - packed.forward.compute).value();
  EXPECT_NEAR((in_order.forward.compute - balanced.forward.compute).value() / attention, 7.0 / 8.0, 0.01);
  EXPECT_EQ(in_order.model_flops.value(), balanced.model_flops.value());
  const StageCosts ulysses = long_sequence(R"(, "context_parallel": "ulysses")");
  EXPECT_EQ(long_sequence(R"(, "context_parallel": "ulysses", "zigzag": false)").forward.compute.value(),
            ulysses.forward.compute.value());
}

TEST(Context, PackedDocumentsAttendToThemselves) {
  const auto attention = [](const std::string& training) { return long_sequence("", training).model_flops.value(); };
  const double none = attention("");
  const double half = attention(R"(, "document_length": 16384)");
  const double quarter = attention(R"(, "document_length": 8192)");
  EXPECT_NEAR((none - quarter) / (none - half), 1.5, 1e-9);
  EXPECT_EQ(attention(R"(, "document_length": 32768)"), none);
  // Two documents of 12,000 tokens and one of 8,768.
  const double uneven = (2 * 12000.0 * 12000.0 + 8768.0 * 8768.0) / (32768.0 * 32768.0);
  EXPECT_NEAR((none - attention(R"(, "document_length": 12000)")) / (none - half), (1.0 - uneven) / 0.5, 1e-9);
}

// All-to-alls of two, a ring of four: exactly the sum of what each sends alone.
TEST(Context, HierarchicalLiesBetweenRingAndUlysses) {
  const double ring = long_sequence("").sent.cp.sent_per_rank.value();
  const double ulysses = long_sequence(R"(, "context_parallel": "ulysses")").sent.cp.sent_per_rank.value();
  const StageCosts both = long_sequence(R"(, "context_parallel": "hierarchical", "context_inner": 2)");
  EXPECT_NEAR(both.sent.cp.sent_per_rank.value(), ring * 3.0 / 7.0 + ulysses * (1.0 / 2.0) / (7.0 / 8.0), 1.0);
  const StageCosts again =
      long_sequence(R"(, "context_parallel": "hierarchical", "context_inner": 2, "recompute": "full")");
  EXPECT_NEAR((again.sent.cp.sent_per_rank - both.sent.cp.sent_per_rank).value(),
              ring * 3.0 / 7.0 / 3.0 + ulysses * (1.0 / 2.0) / (7.0 / 8.0) / 2.0, 1.0);
  const auto message_of = [](const std::string& layout) {
    return error_report(
        R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"cp": 8, "global_batch_size": 8, )" + layout +
        R"(}, "training": {"sequence_length": 32768}})");
  };
  EXPECT_EQ(message_of(R"("context_parallel": "hierarchical")").field, "layout.context_parallel");
  EXPECT_EQ(message_of(R"("context_parallel": "hierarchical", "context_inner": 8)").field, "layout.context_inner");
  EXPECT_EQ(message_of(R"("context_parallel": "hierarchical", "context_inner": 3)").help, "valid: 2, 4");
  EXPECT_EQ(message_of(R"("context_inner": 2)").field, "layout.context_inner");
}

// Seven merges of the context's features, forward and backward, at the device's memory bandwidth.
TEST(Context, PartsOfARingAreMerged) {
  const auto with = [](const char* forward, const char* backward) {
    return forecast_of_job(std::string(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"cp": 8, "dp": 1,
      "global_batch_size": 1}, "training": {"sequence_length": 32768, "stack": {"name": "torchtitan",
      "ring_merge_forward_bytes": )") +
                           forward + R"(, "ring_merge_backward_bytes": )" + backward + "}}}")
        .step.costs.stages.front();
  };
  const StageCosts none = with("0", "0");
  const StageCosts some = with("100", "30");
  const Device device =
      job_from(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})").cluster.device;
  const double elements = 4096.0 * 4096.0 * 32 * 7;
  const double rate = device.memory_bandwidth.value() * device.memory_efficiency;
  const double launches = 7 * 32 * device.kernel_launch.value();
  EXPECT_NEAR((some.forward.compute - none.forward.compute).value(), elements * 100 / rate + launches, 1e-6);
  EXPECT_GT(some.input_gradient.compute, none.input_gradient.compute);
}

// After each pass of a stage, an all-reduce of a few KB over all ranks that hold it, or over those of a tensor.
TEST(LowPrecision, DelayedScalingAgreesOnMagnitudes) {
  const auto stage = [](const std::string& training) {
    return forecast_of_job(R"({"model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": 8}, "layout": {"tp": 4,
      "sequence_parallel": true, "global_batch_size": 64}, "training": {"stack": "nemo@24.11", "precision": "fp8")" +
                           training + "}}")
        .step.costs.stages.front();
  };
  const StageCosts none = stage(R"(, "amax_reduction": "none")");
  const StageCosts all = stage("");
  const StageCosts tensor = stage(R"(, "amax_reduction": "tensor")");
  const double of_all = (all.forward.comm.dp - none.forward.comm.dp).value();
  const double of_tensor = (tensor.forward.comm.tp - none.forward.comm.tp).value();
  EXPECT_GT(of_tensor, 5e-6);
  EXPECT_GT(of_all, 2.0 * of_tensor);
  EXPECT_LT(of_all, 1e-3);
  EXPECT_NEAR((all.input_gradient.comm.dp - none.input_gradient.comm.dp).value(), of_all, 1e-12);
  EXPECT_EQ(stage(R"(, "fp8_recipe": "current")").forward.comm.dp.value(), none.forward.comm.dp.value());
}

// With gathers and sums of 1.5 and 4 times the products' time, each hides for as long as its own product.
TEST(TensorParallel, CollectivesHideBehindTheProductsOfTheirLinear) {
  TensorCollectives tensor;
  tensor.gather = Seconds(3);
  tensor.sum = Seconds(2);
  tensor.attention = {Seconds(1), Seconds(4)};
  tensor.mlp = {Seconds(5), Seconds(1)};
  EXPECT_EQ(tensor.beside().value(), (1 + 2) + (3 + 1));
  tensor.has_mlp = false;
  EXPECT_EQ(tensor.beside().value(), 1 + 2);
}

TEST(DataParallel, HybridShardsHoldExpertsLikeOtherWeights) {
  const auto weights = [](const std::string& layout) {
    return forecast_of_experts(layout).result.memory.per_pipeline_rank.front().weights_gib;
  };
  const double whole = weights(R"("data_parallel": "ddp")");
  EXPECT_NEAR(whole, 86.99, 0.01);
  EXPECT_NEAR(weights(R"("data_parallel": "hsdp")"), whole / 8, 1e-9);
  EXPECT_NEAR(weights(R"("data_parallel": "fsdp")"), whole / 64, 1e-9);
  // Two of eight experts per rank: shards of 8 ranks hold them in 8/4 parts, shards of 2 completely.
  const StageCosts stage = forecast_of_experts(R"("data_parallel": "ddp", "ep": 4)").step.costs.stages.front();
  const double element = 2.0 / kGibibyte;
  const double dense = (stage.parameters - stage.expert_parameters) * element;
  const double experts = stage.expert_parameters * element;
  EXPECT_NEAR(weights(R"("data_parallel": "hsdp", "ep": 4)"), dense / 8 + experts / 2, 1e-9);
  EXPECT_NEAR(weights(R"("data_parallel": "hsdp", "ep": 4, "shards": 2)"), dense / 2 + experts, 1e-9);
  EXPECT_NEAR(weights(R"("data_parallel": "fsdp", "ep": 4)"), dense / 64 + experts / 16, 1e-9);
}

// With as many expert-parallel ranks as replicas only the rest is gathered: the head with its norm is the largest unit.
TEST(DataParallel, ExpertsThatNobodySharesHaveNoCopies) {
  const auto answer = [](const std::string& zero) {
    return forecast_of_job(R"({"model": "mixtral-8x7b", "cluster": "dgx-h100",
        "layout": {"global_batch_size": 8, "ep": 8, "zero": )" +
                           zero + R"(},
        "training": {"precision": "bf16", "sequence_length": 2048}})");
  };
  const double head = 32000.0 * 4096 + 4096;
  const Forecast cut = answer("3");
  const double gradients = cut.step.job.training.stack.gradient_bytes * head;
  EXPECT_NEAR(cut.result.memory.per_pipeline_rank.front().workspace_gib -
                  answer("0").result.memory.per_pipeline_rank.front().workspace_gib,
              gibibytes(Bytes(2 * 2 * head + gradients)), 1e-6);
}

TEST(DataParallel, ShardedOptimizerUpdatesTheExpertsItHolds) {
  const Forecast whole = forecast_of_experts(R"("data_parallel": "ddp", "ep": 4)");
  const Forecast sharded = forecast_of_experts(R"("zero": 1, "ep": 4)");
  const auto optimizer = [](const Forecast& answer) { return answer.step.costs.ranks.front().optimizer; };
  const StageCosts& stage = whole.step.costs.stages.front();
  const double dense = stage.parameters - stage.expert_parameters;
  const double share = (dense / 64 + stage.expert_parameters / 16) / stage.parameters;
  EXPECT_NEAR(optimizer(sharded) / optimizer(whole) / share, 1.0, 0.02);
}

TEST(DataParallel, HybridShardsSendExpertsInsideAndAcross) {
  const auto sent = [](const std::string& layout) {
    const Forecast answer = forecast_of_experts(R"("data_parallel": "hsdp", )" + layout);
    const StageCosts& stage = answer.step.costs.stages.front();
    const double bytes = stage.sent.dp.sent_per_rank.value();
    return std::pair(bytes, std::pair(stage.parameters - stage.expert_parameters, stage.expert_parameters));
  };
  // F shards, R copies, bf16 weights twice and fp32 gradients once: (2·2 + 4)(F-1)/F inside, 4·2(R-1)/R/F across.
  const auto share = [](double f, double r) { return 8.0 * (f - 1) / f + 8.0 * (r - 1) / r / f; };
  const auto [alone, parts] = sent(R"("shards": 8)");
  EXPECT_NEAR(alone / ((parts.first + parts.second) * share(8, 8)), 1.0, 1e-9);
  const auto [spread, spread_parts] = sent(R"("shards": 8, "ep": 4)");
  EXPECT_NEAR(spread / (spread_parts.first * share(8, 8) + spread_parts.second * share(2, 8)), 1.0, 1e-9);
  const auto [whole, whole_parts] = sent(R"("shards": 2, "ep": 4)");
  EXPECT_NEAR(whole / (whole_parts.first * share(2, 32) + whole_parts.second * share(1, 16)), 1.0, 1e-9);
}

// One layer per stage: traffic hides behind adjacent passes, but is fully exposed without them. Hidden traffic slows
// the overlapped computation by two fifths of its time.
TEST(DataParallel, PassesThatFollowEachOtherHideTheEndsOfTheirTraffic) {
  const auto answer = [](const std::string& layout) {
    return forecast_of_job(R"({"model": "llama3.1-405b", "cluster": {"name": "dgx-h100", "nodes": 2048}, "layout": {
        "tp": 8, "pp": 16, "vpp": 7, "sequence_parallel": true, "schedule": "interleaved", "global_batch_size": 2048, )" +
                           layout + R"(}, "training": {"sequence_length": 8192}})");
  };
  const Forecast once = answer(R"("zero": 1)");
  const Forecast each = answer(R"("zero": 2)");
  EXPECT_GT(each.result.iteration.mfu, 0.7 * once.result.iteration.mfu);
  EXPECT_LE(each.result.iteration.mfu, 1.01 * once.result.iteration.mfu);
}

TEST(DataParallel, ShardedTrafficIsExposedByTheFormulaOfItsPasses) {
  const auto stage = [](int batch) {
    return forecast_of_job(small_job(R"("data_parallel": "fsdp", "global_batch_size": )" + std::to_string(batch)))
        .step.costs.stages.front();
  };
  const double one = stage(64).forward.comm.dp.value();
  const double two = stage(128).forward.comm.dp.value();
  const double four = stage(256).forward.comm.dp.value();
  // among + (alone - among)/k
  const double among = 2 * two - one;
  EXPECT_GE(among, -1e-12);
  EXPECT_LT(among, one);
  EXPECT_NEAR(four, among + (one - among) / 4, 1e-12);
}

TEST(DataParallel, AsynchronousRanksExposeNoMoreThanTheySend) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    // The last rank holds the head, so that the ranks' gradients differ.
    const std::string layout = R"("pp": 4, "global_batch_size": 64, "schedule": ")" + std::string(schedule) + '"';
    const Forecast answer = forecast_of_job(small_job(layout, "deepspeed", R"(, "transport": "gloo")"));
    const AxisCommunication& dp = answer.result.communication.dp;
    EXPECT_GT(dp.exposed_s, 0.0) << schedule;
    EXPECT_LE(dp.exposed_s, dp.total_s) << schedule;
    const Breakdown& b = answer.result.breakdown;
    const double sum = b.compute_s + b.recompute_s + b.tp_comm_s + b.pp_comm_s + b.dp_comm_s + b.cp_comm_s +
                       b.ep_comm_s + b.optimizer_s + b.offload_s + b.bubble_s;
    EXPECT_NEAR(sum / answer.result.iteration.time_s, 1.0, 1e-12) << schedule;
    double waiting = 0.0;
    for (const double share : answer.result.bubble.per_pipeline_rank) waiting += share / 4;
    EXPECT_NEAR(waiting, answer.result.bubble.fraction, 1e-9) << schedule;
  }
}

TEST(DataParallel, ComplaintsBlameAnAxisThatWasGiven) {
  const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
      {R"("tp": 2, "cp": 64)", {"layout.tp", "valid tp: 1"}},
      {R"("cp": 128)", {"layout.cp", "valid cp: 1, 2, 4, 8, 16, 32, 64"}},
      {R"("tp": 16, "cp": 128)", {"layout.cp", "valid cp: 1, 2, 4"}},
      {R"("tp": 16, "cp": 8)", {"layout.tp", "valid tp: 1, 2, 4, 8"}},
      {R"("pp": 3)", {"layout.pp", "valid pp: 1, 2, 4"}},
  };
  for (const auto& [layout, expected] : cases) {
    const Diagnostic diagnostic = error_report(small_job(std::string(layout) + R"(, "global_batch_size": 64)"));
    EXPECT_EQ(diagnostic.field, expected.first) << layout << "\n" << diagnostic.problem;
    EXPECT_NE(diagnostic.help.find(expected.second), std::string::npos) << layout << "\n" << diagnostic.help;
  }
}

TEST(DataParallel, ContextParallelRanksShareGradients) {
  const Forecast answer = forecast_of_job(small_job(R"("cp": 2, "global_batch_size": 64)"));
  EXPECT_EQ(answer.step.job.layout.dp, 32);
  EXPECT_NEAR(answer.result.communication.dp.bytes_sent_per_rank / (psi(answer) * 2.0), 2.0 * 63 / 64, 1e-6);
  const RankMemoryResult rank = forecast_of_job(small_job(R"("cp": 2, "zero": 1, "global_batch_size": 64)"))
                                    .result.memory.per_pipeline_rank.front();
  EXPECT_NEAR(rank.optimizer_gib * 64 * kGibibyte / (psi(answer) * 12.0), 1.0, 1e-9);
}

TEST(DataParallel, BucketsHideBehindTheLastBackwardPass) {
  const auto exposed = [](const char* stack, const std::string& more) {
    return forecast_of_job(small_job(R"("global_batch_size": 64)" + more, stack)).result.communication.dp;
  };
  const AxisCommunication hidden = exposed("pytorch-ddp", "");
  const AxisCommunication small = exposed("pytorch-ddp", R"(, "bucket_mb": 1)");
  const AxisCommunication single = exposed("pytorch-ddp", R"(, "bucket_mb": 1000000)");
  EXPECT_LT(hidden.exposed_s, 0.8 * hidden.total_s);
  // The only bucket is ready when the pass ends, so nothing of it is hidden.
  EXPECT_NEAR(single.exposed_s / single.total_s, 1.0, 1e-3);
  EXPECT_GT(small.messages, hidden.messages);
  EXPECT_LT(single.messages, hidden.messages);
}

// Many buckets in a queue compared with the one task they are merged into.
TEST(DataParallel, MergedBucketsEndWithTheLastOfTheQueue) {
  for (const Ticks slow : {1, 7, 20, 60}) {
    ScheduleRequest request;
    request.pipeline_ranks = 2;
    request.microbatches = 3;
    const Program program = generate_schedule(*find_schedule("1f1b"), request);
    StepTimes times;
    times.stages.assign(2, StageTimes{50, 100, 50, 50, {}});
    times.boundaries.assign(1, BoundaryTimes{5, 5});
    times.flush.assign(2, FlushTimes{0, 0, 0, 10, 0});
    times.overlapped_reductions.resize(2);
    Ticks total = 0;
    Ticks latest = -100;
    const Ticks ready[] = {90, 60, 30, 0};
    for (int bucket = 0; bucket < 4; ++bucket) total += slow + bucket;
    Ticks left = total;
    for (int bucket = 0; bucket < 4; ++bucket) {
      for (int rank = 0; rank < 2; ++rank) {
        times.overlapped_reductions[static_cast<std::size_t>(rank)].push_back({rank, ready[bucket], slow + bucket});
      }
      latest = std::max(latest, left - ready[bucket]);
      left -= slow + bucket;
    }
    StepTimes merged = times;
    for (int rank = 0; rank < 2; ++rank) {
      merged.overlapped_reductions[static_cast<std::size_t>(rank)] = {{rank, total - latest, total}};
    }
    EXPECT_EQ(simulate(program, times).makespan(), simulate(program, merged).makespan()) << slow;
    StepTimes bare = times;
    bare.overlapped_reductions.clear();
    EXPECT_EQ(simulate(program, times).makespan(), simulate(program, bare).makespan() + std::max<Ticks>(0, latest));
  }
}

TEST(DataParallel, OneProcessSendsEverythingOverOneLink) {
  const auto job = [](const char* form) {
    return R"({"model": {"layers": 12, "hidden": 768, "heads": 12, "vocab": 50304, "sequence_length": 1024},
               "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8, "data_parallel": ")" +
           std::string(form) + R"("}, "training": {"stack": "pytorch-ddp", "precision": "fp16"}})";
  };
  const Forecast one = forecast_of_job(job("dataparallel"));
  const Forecast many = forecast_of_job(job("ddp"));
  EXPECT_GT(one.result.iteration.time_s, 2 * many.result.iteration.time_s);
  const double outputs = 2.0 * 1024 * 50304 + 8.0 * 1024;
  EXPECT_NEAR(one.result.communication.dp.bytes_sent_per_rank, 7 * (2.0 * psi(one) + outputs), 1e-3 * psi(one));
}

TEST(DataParallel, SpareHostsHelpBytepsMoreThanParameterServers) {
  const auto time = [](const std::string& form) {
    return forecast_of_job(small_job(R"("global_batch_size": 64, "data_parallel": )" + form))
        .result.communication.dp.total_s;
  };
  EXPECT_GT(time(R"("ps", "spare_hosts": 1)"), time(R"("ps", "spare_hosts": 4)"));
  EXPECT_GT(time(R"("byteps")"), time(R"("byteps", "spare_hosts": 4)"));
  EXPECT_GT(time(R"("ps", "spare_hosts": 4)"), time(R"("byteps", "spare_hosts": 4)"));
  EXPECT_NEAR(time(R"("ps", "spare_hosts": 8)") / time(R"("byteps", "spare_hosts": 8)"), 1.0, 1e-9);
}

TEST(Compression, SendsWhatItsFormulaSays) {
  const auto answer = [](const std::string& form) {
    return forecast_of_job(small_job(R"("global_batch_size": 64, "compression": )" + form));
  };
  const Forecast none = answer(R"("none")");
  const double all = none.result.communication.dp.bytes_sent_per_rank;
  EXPECT_NEAR(answer(R"("8bit")").result.communication.dp.bytes_sent_per_rank / all, (1 + 4.0 / 512) / 2, 1e-6);
  EXPECT_NEAR(answer(R"("4bit")").result.communication.dp.bytes_sent_per_rank / all, (0.5 + 4.0 / 512) / 2, 1e-6);
  const double top = answer(R"("topk:0.01")").result.communication.dp.bytes_sent_per_rank;
  EXPECT_NEAR(top / (63 * 0.01 * psi(none) * (2 + 4)), 1.0, 1e-5);
  const double low = answer(R"("powersgd:4")").result.communication.dp.bytes_sent_per_rank;
  // Four matrices per layer; rank 4 of 4·1024² · 3 elements.
  const double h = 1024;
  const double matrices = 36 * 4 * ((h + 3 * h) + (h + h) + (h + 4 * h) + (4 * h + h));
  EXPECT_GT(low / (4.0 * 2 * 63 / 64), matrices);
  EXPECT_LT(low, 0.5 * all);
  EXPECT_GT(answer(R"("topk:0.01")").result.memory.peak_gib, none.result.memory.peak_gib);
}

// 8-bit codes and an fp32 scale for each 512: gradients are read and codes written, then the reverse.
TEST(Compression, CostsItsPassesOverMemory) {
  const Forecast answer = forecast_of_job(small_job(R"("global_batch_size": 64, "compression": "8bit")"));
  const Cluster& cluster = answer.step.job.cluster;
  const Device& device = cluster.device;
  const double code = 1.0 + 4.0 / 512;
  const double fp16 = 2.0;
  GroupPlacement all;
  all.ranks = 64;
  all.nodes = 8;
  all.ranks_per_node = 8;
  const Seconds network =
      CommunicationModel(cluster).collective(CollectiveKind::kAllReduce, Bytes(psi(answer) * code), all);
  const Seconds passes =
      Bytes(psi(answer) * 2.0 * (fp16 + code)) / (device.memory_bandwidth * device.memory_efficiency) +
      device.kernel_launch * 4.0;
  const Seconds reduction = answer.step.costs.ranks.front().gradient_reduction;
  EXPECT_NEAR(reduction.value(), (network + passes).value(), 1e-12);
  EXPECT_GT(passes.value(), 1e-4) << "should be noticeable";
}

// 36 blocks, the embedding and the head are gathered forward and again backward. If computation covers all but the
// first gather of the only pass, only that one is delayed, in either direction.
TEST(ShardedGathers, WaitForTheirMemory) {
  Job job = job_from(small_job(R"("data_parallel": "fsdp", "micro_batch_size": 64, "global_batch_size": 4096)"));
  const auto costs_with = [&job](double seconds) {
    job.training.stack.gather_allocation = Seconds(seconds);
    return forecast(job, no_files).step.costs.stages.front();
  };
  const StageCosts none = costs_with(0.0);
  const StageCosts some = costs_with(1e-4);
  EXPECT_NEAR((some.sent.dp.time - none.sent.dp.time).value(), 2 * 38 * 1e-4, 1e-9);
  EXPECT_NEAR((some.forward.comm.dp - none.forward.comm.dp).value(), 1e-4, 1e-9);
  EXPECT_NEAR((some.input_gradient.comm.dp - none.input_gradient.comm.dp).value(), 1e-4, 1e-9);
}

// However slow the network is, computation overlapped with a transfer loses only its share of multiprocessors.
TEST(Transfers, SlowNoMoreThanThePassBeside) {
  const auto computed = [](const char* overlap) {
    return forecast_of_job(
               R"({"model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200, "sequence_length": 1024},
        "cluster": {"name": "dgx-a100-80g", "nodes": 4, "nic_bandwidth": "0.01GB/s"},
        "layout": {"pp": 4, "tp": 8, "global_batch_size": 16},
        "training": {"precision": "bf16", "stack": "megatron-core", "overlap": {"p2p": )" +
               std::string(overlap) + "}}}")
        .result.breakdown.compute_s;
  };
  const double alone = computed("false");
  const double share =
      overlap_slowdown(forecast_of_job(small_job(R"("global_batch_size": 64)")).step.job.cluster.device);
  EXPECT_GT(computed("true"), alone);
  EXPECT_LE(computed("true"), alone * (1.0 + share) * (1.0 + 1e-9));
}

TEST(Offload, TradesMemoryForTheHostLink) {
  const auto answer = [](const std::string& form) {
    return forecast_of_job(small_job(R"("global_batch_size": 64, "offload": ")" + form + "\""));
  };
  const Forecast none = answer("none");
  const Forecast optimizer = answer("optimizer");
  const Forecast activations = answer("activations");
  const double parameters = psi(none);
  EXPECT_EQ(optimizer.result.memory.per_pipeline_rank.front().optimizer_gib, 0.0);
  EXPECT_GT(optimizer.result.breakdown.optimizer_s, parameters * 4.0 / 32e9);
  EXPECT_LT(activations.result.memory.peak_gib, none.result.memory.peak_gib);
  EXPECT_GE(activations.result.iteration.time_s, none.result.iteration.time_s);
}

TEST(Transport, GlooAndMpiAreSlowerThanNccl) {
  const auto time = [](const char* transport) {
    return forecast_of_job(small_job(R"("global_batch_size": 64)", "deepspeed",
                                     std::string(R"(, "transport": ")") + transport + "\""))
        .result.communication.dp.total_s;
  };
  EXPECT_LT(time("nccl"), time("mpi"));
  EXPECT_LT(time("mpi"), time("gloo"));
  // A ring of 64 at 1.15 GB/s.
  const double bytes = psi(forecast_of_job(small_job(R"("global_batch_size": 64)"))) * 2.0;
  EXPECT_NEAR(time("gloo"), 2.0 * 63 / 64 * bytes / 1.15e9 + 126 * 50e-6 + 2 * bytes / 32e9, 0.02 * time("gloo"));
}

TEST(TensorGrid, FormsShareWorkAndWeights) {
  const auto answer = [](const std::string& form) {
    return forecast_of_job(small_job(R"("micro_batch_size": 16, "global_batch_size": 256, )" + form));
  };
  const Forecast line = answer(R"("tp": 16)");
  const Forecast plane = answer(R"("tp": 16, "tensor_parallel": "2d")");
  const Forecast deep = answer(R"("tp": 16, "tensor_parallel": "2.5d", "tensor_depth": 4)");
  const Forecast cube = answer(R"("tp": 8, "tensor_parallel": "3d")");
  EXPECT_NEAR(plane.step.costs.stages[0].model_flops / line.step.costs.stages[0].model_flops, 1.0, 1e-9);
  EXPECT_NEAR(deep.step.costs.stages[0].model_flops / line.step.costs.stages[0].model_flops, 1.0, 1e-9);
  EXPECT_NEAR(cube.step.costs.stages[0].model_flops / line.step.costs.stages[0].model_flops, 2.0, 1e-9);
  EXPECT_LT(psi(plane), psi(line));
  EXPECT_NEAR(psi(deep) / psi(plane), 4.0, 1e-9);
  EXPECT_GT(deep.result.breakdown.tp_comm_s, 0.0);
}

TEST(ParallelForms, RefuseWhatDoesNotExistAndSayWhatDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("tp": 6, "tensor_parallel": "2d")", "1, 4, 16, 64"},
      {R"("tp": 8, "tensor_parallel": "2d")", "1, 4, 16, 64"},
      {R"("tp": 8, "tensor_parallel": "2.5d", "tensor_depth": 3)", "tensor_depth 2, 8"},
      {R"("tp": 4, "tensor_parallel": "3d")", "1, 8, 64"},
      {R"("tp": 4, "tensor_parallel": "2d")", "valid: 2, 4, or --tp 1"},
      {R"("tp": 4, "tensor_depth": 2)", "1"},
      {R"("data_parallel": "dataparallel")", "ddp, fsdp"},
      {R"("data_parallel": "fsdp", "zero": 1)", "0, 3, or data_parallel ddp"},
      {R"("data_parallel": "ps", "zero": 1)", "data_parallel ddp"},
      {R"("data_parallel": "hsdp", "shards": 3)", "1, 2, 4, 8"},
      {R"("spare_hosts": 3)", "0, or data_parallel ps, byteps"},
      {R"("reshard_after_forward": false)", "true, or data_parallel fsdp, hsdp"},
      {R"("compression": "2bit")", "none, 8bit, 4bit, topk:F"},
      {R"("compression": "topk:2")", "topk:F"},
      {R"("compression": "8bit", "zero": 1)", "none, or --zero 0"},
      {R"("offload": "disk")", "none, optimizer, activations, all"},
      {R"("zero": 4)", "0 to 3"},
  };
  for (const auto& [layout, help] : cases) {
    const Diagnostic diagnostic = error_report(small_job(std::string(layout) + R"(, "global_batch_size": 64)"));
    EXPECT_NE(diagnostic.help.find(help), std::string::npos) << layout << "\n"
                                                             << diagnostic.problem << "\n"
                                                             << diagnostic.help;
    EXPECT_FALSE(diagnostic.problem.empty()) << layout;
  }
}

// DeepSpeed-Ulysses 2309.14509 §3.2: four all-to-alls of a rank's b·s/c·h elements forward (Q, K, V and the context),
// four backward; of each buffer (c-1)/c leaves the rank. A ring sends K and V c-1 times, and twice as much backward; an
// all-gather gathers as much, gathers it again and scatters it.
TEST(ContextParallel, SendsWhatItsFormSends) {
  const std::string common = R"("cp": 4, "micro_batch_size": 1, "global_batch_size": 16)";
  const double buffer = 1024.0 / 4 * 1024 * 2;  // tokens of a rank, width, fp16
  const auto sent = [&](const std::string& form) {
    return forecast_of_job(small_job(common + form)).result.communication.cp.bytes_sent_per_rank;
  };
  EXPECT_NEAR(sent(R"(, "context_parallel": "ulysses")") / (36 * 8 * buffer * 3 / 4), 1.0, 1e-9);
  EXPECT_NEAR(sent("") / (36 * 3 * 3 * 2 * buffer), 1.0, 1e-9);
  EXPECT_NEAR(sent(R"(, "context_parallel": "allgather")") / (36 * 3 * 3 * 2 * buffer), 1.0, 1e-9);
  const std::string full = R"(, "recompute": "full")";
  EXPECT_NEAR(sent(R"(, "context_parallel": "ulysses")" + full) / (36 * 12 * buffer * 3 / 4), 1.0, 1e-9);
  EXPECT_NEAR(sent(R"(, "context_parallel": "allgather")" + full) / (36 * 4 * 3 * 2 * buffer), 1.0, 1e-9);
}

// A ring of eight holds the seven arriving blocks, all-gather holds the whole sequence and its gradients, recomputed or
// not; kept blocks store them in the memory of other operators' gradients.
TEST(ContextParallel, HoldsKeysAndValuesOfOthers) {
  const auto workspace = [](const std::string& form, const std::string& recompute) {
    return forecast_of_job(small_job(R"("cp": 8, "pp": 2, "global_batch_size": 8, "recompute": ")" + recompute +
                                     R"(", "context_parallel": ")" + form + "\""))
        .result.memory.per_pipeline_rank.front()
        .workspace_gib;
  };
  const double block = gibibytes(Bytes(1024.0 / 8 * 2 * 1024 * 2));
  EXPECT_NEAR(workspace("ring", "full") - workspace("ulysses", "full"), 7 * block, 1e-9);
  EXPECT_NEAR(workspace("allgather", "full") - workspace("ulysses", "full"), 16 * block, 1e-9);
  EXPECT_NEAR(workspace("allgather", "none") - workspace("ring", "none"), 9 * block, 1e-9);
  const double gelu = gibibytes(Bytes(1024.0 / 8 * (4096 + 4096) * 2));
  EXPECT_NEAR(workspace("ring", "none") - workspace("ulysses", "none"), 7 * block - gelu, 1e-9);
}

TEST(ContextParallel, AllFormsComputeAsMuch) {
  const std::string common = R"("cp": 4, "global_batch_size": 16)";
  const Result ring = forecast_of_job(small_job(common)).result;
  const Result ulysses = forecast_of_job(small_job(common + R"(, "context_parallel": "ulysses")")).result;
  EXPECT_NEAR(ulysses.breakdown.compute_s / ring.breakdown.compute_s, 1.0, 1e-9);
  EXPECT_GT(ulysses.breakdown.cp_comm_s, 0.0);

  // Keys and values of the whole sequence, and their gradients: the rank holds them in addition, and nothing is hidden.
  const Result gathered = forecast_of_job(small_job(common + R"(, "context_parallel": "allgather")")).result;
  EXPECT_NEAR(gathered.breakdown.compute_s / ring.breakdown.compute_s, 1.0, 1e-9);
  EXPECT_GT(gathered.breakdown.cp_comm_s, ring.breakdown.cp_comm_s);
}

TEST(ContextParallel, UlyssesNeedsWholeHeads) {
  const Diagnostic heads =
      error_report(small_job(R"("cp": 32, "global_batch_size": 16, "context_parallel": "ulysses")"));
  EXPECT_EQ(heads.field, "layout.cp");
  EXPECT_EQ(heads.help, "valid: 4, 8, 16, or context_parallel ring, allgather");
  const Diagnostic alone = error_report(small_job(R"("global_batch_size": 64, "context_parallel": "ulysses")"));
  EXPECT_EQ(alone.field, "layout.context_parallel");
  EXPECT_EQ(error_report(small_job(R"("global_batch_size": 64, "context_parallel": "allgather")")).field,
            "layout.context_parallel");
}

// Each tensor-parallel rank keeps 1/t of the block inputs, and one all-gather per layer restores them: (t-1)/t · bsh.
TEST(PartitionedCheckpoints, TradeMemoryForAGather) {
  const std::string common = R"("tp": 4, "recompute": "full", "micro_batch_size": 1, "global_batch_size": 16)";
  const Result plain = forecast_of_job(small_job(common)).result;
  const Result cut = forecast_of_job(small_job(common + R"(, "partition_checkpoints": true)")).result;
  const double hidden = 1024.0 * 1024 * 2;
  const double kept = gibibytes(Bytes(36 * hidden));
  EXPECT_NEAR(plain.memory.per_pipeline_rank[0].activations_gib - cut.memory.per_pipeline_rank[0].activations_gib,
              kept * 3 / 4, 1e-9);
  EXPECT_NEAR(cut.communication.tp.bytes_sent_per_rank - plain.communication.tp.bytes_sent_per_rank,
              36 * hidden * 3 / 4, 1.0);
  EXPECT_GT(cut.iteration.time_s, plain.iteration.time_s);
  for (const char* wrong : {R"("tp": 4, "recompute": "none")", R"("tp": 1, "recompute": "full")",
                            R"("tp": 4, "sequence_parallel": true, "recompute": "full")"}) {
    const Diagnostic message_of =
        error_report(small_job(std::string(wrong) + R"(, "global_batch_size": 64, "partition_checkpoints": true)"));
    EXPECT_EQ(message_of.field, "layout.partition_checkpoints") << wrong;
  }
}

TEST(MemoryParts, AddUpToEveryRanksTotal) {
  for (const char* layout :
       {R"("tp": 2, "pp": 4, "vpp": 3, "schedule": "interleaved", "global_batch_size": 64)",
        R"("tp": 4, "sequence_parallel": true, "recompute": "selective", "global_batch_size": 64)",
        R"("pp": 4, "recompute": "full", "global_batch_size": 64)",
        R"("data_parallel": "fsdp", "global_batch_size": 64)", R"("pp": 2, "zero": 1, "global_batch_size": 64)",
        R"("compression": "topk:0.01", "global_batch_size": 64)"}) {
    const Forecast answer = forecast_of_job(small_job(layout, "megatron-2022"));
    const auto& ranks = answer.result.memory.per_pipeline_rank;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      Bytes sum;
      for (const MemoryPart& part :
           memory_parts(answer.step, static_cast<int>(rank), ranks[rank], answer.memory[rank])) {
        EXPECT_GT(part.total().value(), 0.0) << layout << " " << part.name;
        sum += part.total();
      }
      EXPECT_NEAR(gibibytes(sum) / ranks[rank].total_gib, 1.0, 1e-9) << layout << " rank " << rank;
    }
  }
}

TEST(MemoryShown, AddsWhatTheStackHoldsBeyondTensors) {
  const MemoryResult memory =
      forecast_of_job(small_job(R"("tp": 2, "global_batch_size": 64)", "megatron-deepspeed")).result.memory;
  EXPECT_NEAR(memory.shown_gib - memory.peak_gib, 8.0, 1e-9);
  EXPECT_NEAR(memory.per_pipeline_rank[0].shown_gib, memory.shown_gib, 1e-9);
}

// An answer must not both count the overhead and claim to leave it out.
TEST(MemoryShown, IsWhatTheAssumptionsTell) {
  const auto told = [](const char* stack, const char* words) {
    const Forecast answer = forecast_of_job(small_job(R"("tp": 2, "global_batch_size": 64)", stack));
    const auto& lines = answer.result.assumptions;
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(words) != std::string::npos; });
  };
  EXPECT_TRUE(told("megatron-deepspeed", "megatron-deepspeed takes 8 GiB"));
  EXPECT_FALSE(told("megatron-deepspeed", "excludes the CUDA context"));
  EXPECT_TRUE(told("megatron-2022", "excludes the CUDA context"));
}

// The device also holds context, buffers and fragmentation: 8 GiB that tensors cannot use.
TEST(MemoryShown, HasToFit) {
  Job job = job_from(small_job(R"("tp": 2, "global_batch_size": 64)", "megatron-deepspeed"));
  const double tensors = forecast(job, no_files).result.memory.peak_gib;
  const auto answer_with = [&job](double gib) {
    job.cluster.device.memory_capacity = Bytes(gib * kGibibyte);
    return forecast(job, no_files).result;
  };
  EXPECT_TRUE(answer_with(tensors + 8.01).memory.fits);
  const Result beyond = answer_with(tensors + 7.99);
  EXPECT_FALSE(beyond.memory.fits);
  ASSERT_FALSE(beyond.warnings.empty());
  EXPECT_NE(beyond.warnings.back().find(fmt::format("needs {:.1f} GiB", tensors + 8.0)), std::string::npos)
      << beyond.warnings.back();
}

}  // namespace
}  // namespace flopcast
