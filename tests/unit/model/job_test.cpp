#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "model/job/user_spelling.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

constexpr const char* kSelene = R"({
  // as in design
  "model": "gpt3-175b",
  "cluster": {"name": "dgx-a100-80g", "nodes": 8},
  "layout": {"tp": 8, "pp": 8, "vpp": 3, "sequence_parallel": true, "schedule": "interleaved",
             "micro_batch_size": 1, "global_batch_size": 64, "recompute": "selective"},
  "training": {"sequence_length": 2048, "precision": "bf16", "stack": "megatron-2022", "tokens": "300B"}
})";

TEST(Job, ReadsEverySection) {
  const Job job = job_from(kSelene);
  EXPECT_EQ(job.model.layers, 96);
  EXPECT_EQ(job.cluster.devices(), 64);
  EXPECT_EQ(job.layout.dp, 1);
  EXPECT_EQ(job.layout.microbatches(), 64);
  EXPECT_EQ(job.layout.recompute, Recompute::kSelective);
  EXPECT_EQ(job.training.stack.name, "megatron-2022");
  EXPECT_FALSE(job.training.flash_attention);
  EXPECT_DOUBLE_EQ(*job.training.tokens, 300e9);
}

TEST(Job, FillsDefaultsAndSaysSo) {
  const Job job =
      job_from(R"({"model": "gpt3-175b", "cluster": "2xdgx-a100-80g", "layout": {"tp": 4, "global_batch_size": 8}})");
  EXPECT_EQ(job.layout.dp, 4);
  EXPECT_EQ(job.layout.microbatches(), 2);
  EXPECT_EQ(job.training.sequence_length, 2048);
  EXPECT_EQ(job.training.stack.name, "megatron-core");
  EXPECT_EQ(job.assumptions.size(), 5u);  // sequence length, precision, stack and its release, bucket
}

TEST(Job, AnInlineModelAndClusterNeedNoCatalogue) {
  const Job job = job_from(R"({
    "model": {"layers": 4, "hidden": 64, "heads": 4, "vocab": 1000, "sequence_length": 128, "norm": "rmsnorm"},
    "cluster": {"nodes": 1, "devices_per_node": 2, "device": {"name": "mine", "generation": "ampere",
      "peak": {"bf16": "10TFLOP/s"}, "memory_capacity": "16GiB", "memory_bandwidth": "500GB/s", "multiprocessors": 20,
      "gemm_efficiency": 0.7, "memory_efficiency": 0.8, "flash_forward_efficiency": 0.4, "flash_backward_efficiency": 0.4,
      "kernel_launch": "5us"},
      "intra_bandwidth": "10GB/s", "intra_latency": "10us", "nic_bandwidth": "10Gbit/s", "inter_latency": "30us"},
    "layout": {"global_batch_size": 4}})");
  EXPECT_EQ(job.model.ffn, 256);
  EXPECT_FALSE(job.model.biases);
  EXPECT_EQ(job.layout.dp, 2);
  EXPECT_DOUBLE_EQ(job.cluster.nic_bandwidth.value(), 1.25e9);
}

TEST(Job, ACatalogueEntryCanBeRefined) {
  const Job job = job_from(
      R"({"model": {"name": "gpt3-175b", "layers": 48}, "cluster": {"name": "dgx-a100-80g", "nic_bandwidth": "400Gbit/s"},
                               "layout": {"global_batch_size": 8}})");
  EXPECT_EQ(job.model.layers, 48);
  EXPECT_EQ(job.model.hidden, 12'288);
  EXPECT_DOUBLE_EQ(job.cluster.nic_bandwidth.value(), 50e9);
}

TEST(Job, ADeviceTellsSharesByPrecision) {
  const auto with = [](const std::string& shares) {
    return job_from(R"({"model": "gpt3-175b", "cluster": {"name": "dgx-h100", "device": {"name": "h100",
                       "gemm_efficiency_by_precision": )" +
                    shares + R"(}}, "layout": {"global_batch_size": 8}})");
  };
  const Device device = with(R"({"fp8": 0.5, "tf32": 0.7})").cluster.device;
  EXPECT_EQ(device.gemm_efficiency_of(Precision::kFp8), 0.5);
  EXPECT_EQ(device.gemm_efficiency_of(Precision::kTf32), 0.7);
  EXPECT_EQ(device.gemm_efficiency_of(Precision::kBf16), device.gemm_efficiency);
  EXPECT_EQ(device.gemm_efficiency_fp4, 0.0);
  EXPECT_EQ(with(R"({"fp4": 0.4})").cluster.device.gemm_efficiency_fp4, 0.4);
  const Device b300 = job_from(R"({"model": "gpt3-175b", "cluster": {"name": "hgx-b300", "device": {"name": "b300",
                                   "gemm_efficiency_by_precision": {"fp8": 0.5}}}, "layout": {"global_batch_size": 8}})")
                          .cluster.device;
  EXPECT_EQ(b300.gemm_efficiency_of(Precision::kFp8), 0.5);
  EXPECT_EQ(b300.gemm_efficiency_fp4, 0.38) << "a figure of one precision leaves the others unchanged";
  for (const char* bad : {R"({"fp9": 0.5})", R"({"fp8": 1.5})", R"({"fp8": 0})", "0.5"}) {
    EXPECT_THROW(with(bad), ConfigError) << bad;
  }
}

FlagValue flag(const char* field, const char* name, const char* text) {
  for (const JobKey& key : job_keys()) {
    if (key.field == field) return {&key, name, text};
  }
  return {};
}

TEST(Job, FlagsWinOverTheFile) {
  nlohmann::json root = parse_json(kSelene, "job.json");
  Origins origins;
  origins.file = "job.json";
  apply_flags(
      {flag("layout.tp", "--tp", "4"), flag("model.layers", "--num-layers", "48"),
       flag("layout.sequence_parallel", "--sp", "false"), flag("layout.stage_layers", "--layout.stage_layers", "1,2,3"),
       flag("cluster", "--cluster", "4xdgx-a100-80g")},
      root, origins);
  const Job job = read_job(root, origins);
  EXPECT_EQ(job.layout.tp, 4);
  EXPECT_EQ(job.layout.dp, 1);
  EXPECT_EQ(job.model.layers, 48);
  EXPECT_FALSE(job.layout.sequence_parallel);
  EXPECT_EQ(job.layout.stage_layers, std::vector<int>({1, 2, 3}));
  EXPECT_EQ(job.origins.where("layout.tp"), "--tp");
  EXPECT_EQ(job.origins.where("layout.pp"), "job.json:/layout/pp");
}

struct ErrorReport {
  const char* text;
  const char* field;
  const char* problem;  // a part of it
  const char* help;     // a part of it
};

TEST(Job, ComplaintsNameFieldValueAndValidChoices) {
  const auto layout = [](const char* keys) { return gpt3_job(std::string("{") + keys + "}"); };
  const std::pair<std::string, ErrorReport> cases[] = {
      {layout(R"("tp": 5, "global_batch_size": 64)"),
       {"", "layout.tp", "5 does not divide attention heads 96", "8-GPU nodes: 1, 2, 4, 8"}},
      {layout(R"("tp": 8, "pp": 3, "global_batch_size": 64)"),
       {"", "layout.pp", "24 ranks do not divide the cluster's 64 devices", "1, 2, 4, 8"}},
      {layout(R"("dp": 3, "tp": 8, "global_batch_size": 64)"),
       {"", "layout.dp", "24 ranks, but the cluster has 64 devices", "8"}},
      {layout(R"("tp": 24, "cp": 128, "global_batch_size": 64)"),
       {"", "layout.cp", "3072 ranks do not divide the cluster's 64 devices", "valid cp with --tp 1: 1, 2, 4"}},
      {layout(R"("tp": 8, "global_batch_size": 63)"),
       {"", "layout.global_batch_size", "63 is not a multiple of dp 8", "56, 64"}},
      {layout(R"("tp": 8, "global_batch_size": 4)"), {"", "layout.global_batch_size", "4 is not a multiple", "8"}},
      {layout(R"("tp": "8", "global_batch_size": 64)"), {"", "layout.tp", "\"8\" is not a whole number", "1 to"}},
      {layout(R"("tp": 8.5, "global_batch_size": 64)"), {"", "layout.tp", "8.5 is not a whole number", "1 to"}},
      {layout(R"("tp": 0, "global_batch_size": 64)"), {"", "layout.tp", "0 is out of range", "1 to"}},
      {layout(R"("tp": 99999999999999999999, "global_batch_size": 64)"),
       {"", "layout.tp", "is not a whole number", "1 to"}},
      {layout(R"("tpp": 8, "global_batch_size": 64)"), {"", "layout.tpp", "unknown key", "did you mean tp"}},
      {layout(R"("tp": 8)"), {"", "layout.global_batch_size", "is required", "--gbs"}},
      {layout(R"("recompute": "some", "global_batch_size": 64)"),
       {"", "layout.recompute", "unknown value \"some\"", "none, selective, full"}},
      {layout(R"("recompute_layers": 2, "global_batch_size": 64)"),
       {"", "layout.recompute_layers", "applies only to recompute full, not none", "--recompute full"}},
      {layout(R"("recompute": "full", "recompute_layers": 0, "global_batch_size": 64)"),
       {"", "layout.recompute_layers", "0 is out of range", "1 to"}},
      {layout(R"("recompute": "full", "recompute_modules": ["mlp"], "global_batch_size": 64)"),
       {"", "layout.recompute_modules", "applies only to recompute selective, not full", "--recompute selective"}},
      {layout(R"("recompute": "selective", "recompute_modules": ["mlps"], "global_batch_size": 64)"),
       {"", "layout.recompute_modules", "unknown module \"mlps\"", "did you mean mlp"}},
      {layout(R"("recompute": "selective", "recompute_modules": [], "global_batch_size": 64)"),
       {"", "layout.recompute_modules", "does not name a module", "--recompute none"}},
      {layout(R"("ep": 2, "global_batch_size": 64)"), {"", "layout.ep", "need a model with experts", "1"}},
      {layout(R"("cp": 3, "global_batch_size": 64)"),
       {"", "layout.cp", "does not divide the sequence length 2048", "1, 2, 4"}},
      {layout(R"("placement": "tp-dp", "global_batch_size": 64)"),
       {"", "layout.placement", "does not name every axis once", "tp-cp-dp-pp"}},
      {layout(R"("data_parallel": "fsdq", "global_batch_size": 64)"),
       {"", "layout.data_parallel", "unknown value \"fsdq\"", "ddp"}},
      {R"({"model": "gpt3-17b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8}})",
       {"", "model", "unknown model \"gpt3-17b\"", "gpt3-175b"}},
      {R"({"model": 3, "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8}})",
       {"", "model", "3 is neither a name nor an object", "gpt3-175b"}},
      {R"({"model": "gpt3-175b", "cluster": "dgx-a100", "layout": {"global_batch_size": 8}})",
       {"", "cluster", "unknown cluster \"dgx-a100\"", "dgx-a100-80g"}},
      {R"({"model": "gpt3-175b", "layout": {"global_batch_size": 8}})", {"", "cluster", "is required", "dgx-a100-80g"}},
      {R"({"model": "gpt3-175b", "cluster": {"name": "dgx-a100-80g", "nic_bandwidth": "400"}, "layout": {"global_batch_size": 8}})",
       {"", "cluster.nic_bandwidth", "\"400\" has no unit", "GB/s"}},
      {R"({"model": "gpt3-175b", "cluster": {"name": "dgx-a100-80g", "nic_bandwidth": 400}, "layout": {"global_batch_size": 8}})",
       {"", "cluster.nic_bandwidth", "400 has no unit", "GB/s"}},
      {R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8}, "trainig": {}})",
       {"", "trainig", "unknown key", "did you mean training"}},
      {R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": [], "training": {}})",
       {"", "layout", "[] is not an object", "{"}},
      {R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8}, "training": {"precision": "fp8"}})",
       {"", "training.precision", "fp8 is not supported by device a100-80g", "fp32, tf32, fp16, bf16"}},
      {R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8}, "training": {"tokens": "many"}})",
       {"", "training.tokens", "is not a number", "300B"}},
  };
  for (const auto& [text, expected] : cases) {
    const Diagnostic diagnostic = error_report(text);
    EXPECT_EQ(diagnostic.field, expected.field) << text;
    EXPECT_NE(diagnostic.problem.find(expected.problem), std::string::npos) << text << "\n" << diagnostic.problem;
    EXPECT_NE(diagnostic.help.find(expected.help), std::string::npos) << text << "\n" << diagnostic.help;
    EXPECT_EQ(diagnostic.where.rfind("job.json", 0), 0u) << text << "\n" << diagnostic.where;
  }
}

TEST(Document, LocatesWhatIsNoJson) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "is empty"},
      {" \n ", "is empty"},
      {"{\"model\": ", "is not valid JSON"},
      {"{\"a\": NaN}", "is not valid JSON"},
      {"{\"a\": 1e999}", "out of range"},
      {"{\"a\": 1, \"a\": 2}", "given twice"},
      {"\x01\x02\xff", "is not valid JSON"},
  };
  for (const auto& [text, problem] : cases) {
    const Diagnostic diagnostic = error_report(text);
    EXPECT_NE(diagnostic.problem.find(problem), std::string::npos) << text << "\n" << diagnostic.problem;
    EXPECT_NE(diagnostic.where.find("job.json"), std::string::npos) << text;
  }
  EXPECT_EQ(error_report("{\n  \"model\": x\n}").where, "job.json:2:12");
  EXPECT_NE(error_report(std::string(100'000, '[')).problem.find("nested deeper"), std::string::npos);
}

TEST(Document, NestsAsDeepAsItSays) {
  const auto nested = [](int levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "a.json"));
  EXPECT_THROW(parse_json(nested(65), "a.json"), ConfigError);
}

// A timeline of a million actions is such a list: searching it at each of its ends used to take minutes.
TEST(Document, LongListsTakeTimeByTheirLength) {
  std::string text = "[{}";
  for (int index = 0; index < 400'000; ++index) text += ",{}";
  const std::clock_t before = std::clock();
  EXPECT_EQ(parse_json(text + "]", "a.json").size(), 400'001U);
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 15.0);
}

TEST(Job, SoftwareHasVersions) {
  const auto stack = [](const std::string& name) {
    return job_from(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"global_batch_size": 8},
      "training": {"stack": ")" +
                    name + R"("}})");
  };
  EXPECT_EQ(stack("nemo@23.04").training.stack.flash_kernels, FlashKernels::k1);
  EXPECT_EQ(stack("nemo@23.09").training.stack.flash_kernels, FlashKernels::k2);
  EXPECT_FALSE(stack("nemo@23.09").training.stack.fp8_parameters);
  EXPECT_EQ(stack("nemo@25.02").training.stack.flash_kernels, FlashKernels::kCudnn);
  EXPECT_EQ(stack("nemo@25.02").training.stack.based_on, "nemo");
  EXPECT_EQ(stack("nemo").training.stack.fp8_recipe, Fp8Recipe::kCurrent);
  EXPECT_THROW(stack("nemo@20.01"), ConfigError);
  EXPECT_EQ(stack("deepspeed@0.9").training.stack.flash_kernels, FlashKernels::k1);
  EXPECT_THROW(stack("deepspeed@0.8"), ConfigError);
  EXPECT_THROW(stack("zero-bubble@1"), ConfigError);
}

TEST(Job, WhatItSaysOfItsSoftwareReplacesTheStacks) {
  const Job job = job_from(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"global_batch_size": 8},
    "training": {"stack": "torchtitan", "compile": true, "fused": ["norm"], "cuda_graphs": "full",
      "flash_attention": "3", "overlap": {"tp": true, "p2p": false}, "gradient_dtype": "bf16", "reduce_dtype": "fp32",
      "moment_dtype": "bf16", "precision": "fp8", "fp8_recipe": "rowwise"}})");
  const Stack& stack = job.training.stack;
  EXPECT_TRUE(stack.compile);
  EXPECT_TRUE(stack.fuses(FusedOperator::kLoss));
  EXPECT_FALSE(stack.fused[static_cast<std::size_t>(FusedOperator::kRotary)]);
  EXPECT_EQ(stack.cuda_graphs, CudaGraphs::kFull);
  EXPECT_EQ(stack.flash_kernels, FlashKernels::k3);
  EXPECT_TRUE(stack.overlap_tp_in_pieces);
  EXPECT_TRUE(stack.blocking_sends);
  EXPECT_DOUBLE_EQ(stack.gradient_bytes, 2.0);
  EXPECT_DOUBLE_EQ(stack.reduced_gradient_bytes(), 4.0);
  EXPECT_DOUBLE_EQ(optimizer_bytes_per_parameter(job.training), 8.0);
  EXPECT_EQ(job.training.fp8_recipe, Fp8Recipe::kRowwise);
  EXPECT_THROW(job_from(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"global_batch_size": 8},
    "training": {"precision": "fp8", "fp8_recipe": "mxfp8"}})"),
               ConfigError);
}

// An MI300X has no NVLink, so it does not belong in these nodes, and the assumptions say so; a device of the same
// generation with other memory does.
TEST(Job, TellsOfADeviceInNodesOfAnother) {
  const auto told = [](const std::string& cluster) {
    const Job job =
        job_from(R"({"model": "llama3-8b", "cluster": )" + cluster + R"(, "layout": {"global_batch_size": 8}})");
    return std::any_of(job.assumptions.begin(), job.assumptions.end(), [](const std::string& sentence) {
      return sentence.find("is placed in nodes of dgx-h100") != std::string::npos;
    });
  };
  EXPECT_TRUE(told(R"({"name": "dgx-h100", "device": "mi300x"})"));
  EXPECT_FALSE(told(R"({"name": "dgx-h100", "device": "mi300x", "intra_bandwidth": "448GB/s"})"));
  EXPECT_FALSE(told(R"({"name": "dgx-h100", "device": "h200"})"));
  EXPECT_FALSE(told(R"("dgx-h100")"));
}

TEST(Job, DocumentsArePackedInSequences) {
  const Diagnostic longer = error_report(R"({"model": "llama3-8b", "cluster": "dgx-h100",
      "layout": {"global_batch_size": 8}, "training": {"sequence_length": 4096, "document_length": 4097}})");
  EXPECT_EQ(longer.field, "training.document_length");
  EXPECT_NE(longer.problem.find("longer than a sequence of 4096"), std::string::npos);
}

TEST(Job, AClockNeedsTheOneThatPeaksAreStatedFor) {
  const Diagnostic none =
      error_report(R"({"model": "llama3-8b", "cluster": {"name": "dgx-b200", "device": {"name": "b200",
      "clock": "1.5GHz"}}, "layout": {"global_batch_size": 8}})");
  EXPECT_EQ(none.field, "cluster.device.clock");
  const Job job =
      job_from(R"({"model": "llama3-8b", "cluster": {"name": "dgx-a100-80g", "device": {"clock": "1110MHz"}},
      "layout": {"global_batch_size": 8}, "training": {"nccl": "2.21.5"}})");
  EXPECT_NEAR(job.cluster.device.clock_under_limit(), 1110.0 / 1410.0, 1e-12);
  EXPECT_EQ(job.training.stack.nccl, 221);
  for (const char* release : {"3.0", "2", "2.21.5.1", "2.x", "2.3"}) {
    EXPECT_EQ(error_report(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"global_batch_size": 8},
                              "training": {"nccl": ")" +
                           std::string(release) + "\"}}")
                  .field,
              "training.nccl")
        << release;
  }
}

}  // namespace
}  // namespace flopcast
