// Adapters and frozen layers train as on one rank, and frozen parameters are never sent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "tests/realrun/plans.hpp"
#include "tests/realrun/step_volumes.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

constexpr const char* kLlama =
    R"("kv_heads": 2, "norm": "rmsnorm", "positions": "rotary", "gated_mlp": true, "biases": false)";
constexpr const char* kGpt = R"("norm": "layernorm", "positions": "learned")";

struct Placed {
  int ranks;
  std::string layout;
};

PreparedStep prepared(const std::string& finetune, const Placed& placed, const std::string& model = kLlama,
                      const std::string& optimizer = "sgd") {
  const Job job = job_from(fmt::format(
      R"({{"model": {{"layers": 4, "hidden": 32, "heads": 4, "ffn": 48, "vocab": 32, "sequence_length": 8,
                      "tied_embeddings": true, {}}},
           "cluster": {{"name": "one-gpu", "nodes": {}}},
           "layout": {{"global_batch_size": 8, {}}},
           "training": {{"precision": "fp32", "optimizer": "{}", "stack": "pytorch-ddp", "finetune": {}}}}})",
      model, placed.ranks, placed.layout, optimizer, finetune));
  return prepare(job_as_run(job, false), no_files);
}

TrainingPlan planned(const PreparedStep& step, int steps) {
  return plan_from_job(step, {.steps = steps, .learning_rate = 0.1});
}

std::vector<Placed> layouts() {
  return {{1, R"("dp": 1)"},
          {2, R"("dp": 2)"},
          {2, R"("dp": 2, "zero": 1)"},
          {2, R"("dp": 2, "zero": 2)"},
          {4, R"("dp": 4, "data_parallel": "fsdp")"},
          {4, R"("dp": 4, "data_parallel": "hsdp", "shards": 2)"},
          {4, R"("dp": 2, "data_parallel": "fsdp", "reshard_after_forward": false, "pp": 2)"},
          {2, R"("tp": 2)"},
          {4, R"("tp": 2, "dp": 2, "sequence_parallel": true, "zero": 1)"},
          {8, R"("tp": 2, "dp": 2, "pp": 2, "data_parallel": "fsdp", "schedule": "1f1b")"},
          {2, R"("pp": 2, "schedule": "zb-h1")"},
          {2, R"("pp": 2, "schedule": "interleaved", "recompute": "full")"},
          {4, R"("tp": 2, "pp": 2, "recompute": "selective", "recompute_modules": ["mlp", "layernorm"])"},
          {2, R"("dp": 2, "offload": "all")"},
          {2, R"("cp": 2)"}};
}

std::vector<std::string> methods() {
  return {R"({"method": "lora", "rank": 4, "alpha": 64})",
          R"({"method": "lora", "rank": 4, "alpha": 32, "targets": ["q_proj", "v_proj"]})",
          R"({"method": "lora", "rank": 2, "targets": ["linear_qkv", "linear_fc1", "down_proj"], "embeddings": true})",
          R"({"method": "lora", "rank": 2, "alpha": 32, "targets": ["k_proj", "up_proj"]})",
          R"({"method": "lora", "rank": 4, "targets": ["q_proj"]})",
          R"({"method": "freeze", "trainable_layers": 1})",
          R"({"method": "freeze", "trainable_layers": 2, "embeddings": true})",
          R"({"method": "freeze", "trainable_layers": -1})"};
}

// Several steps, because the gradient of A is zero as long as B is. Alternates between models.
TEST(Finetune, EveryMethodInEveryLayoutTrainsAsOneRank) {
  bool gpt = false;
  for (const std::string& method : methods()) {
    for (const Placed& placed : layouts()) {
      gpt = !gpt;
      const TrainingPlan plan = planned(prepared(method, placed, gpt ? kGpt : kLlama), 4);
      expect_same_training(train_on_threads(serial_plan(plan), {}), train_on_threads(plan, {}),
                           fmt::format("{} on {}", method, placed.layout));
    }
  }
}

// Losses hardly depend on A: compares its elements relative to how far they have moved.
TEST(Finetune, AdaptersMoveAsOnOneRank) {
  for (const Placed& placed : {Placed{2, R"("tp": 2)"}, Placed{2, R"("tp": 2, "sequence_parallel": true)"},
                               Placed{4, R"("tp": 4, "sequence_parallel": true, "micro_batch_size": 2)"},
                               Placed{2, R"("cp": 2)"}, Placed{4, R"("tp": 2, "cp": 2, "sequence_parallel": true)"},
                               Placed{4, R"("tp": 2, "pp": 2, "schedule": "zb-h1")"},
                               Placed{2, R"("tp": 2, "recompute": "full")"}, Placed{2, R"("dp": 2, "zero": 2)"}}) {
    for (const char* model : {kGpt, kLlama}) {
      if (model == kLlama && placed.layout.find(R"("tp": 4)") != std::string::npos) continue;  // has two key heads
      TrainingPlan plan = planned(prepared(R"({"method": "lora", "rank": 4, "alpha": 160})", placed, model), 4);
      const auto after = whole_weights(train_on_threads(plan, {}));
      const auto expected = whole_weights(train_on_threads(serial_plan(plan), {}));
      plan.optimizer.rate = 0;
      std::size_t adapters = 0;
      for (const auto& [name, before] : whole_weights(train_on_threads(plan, {}))) {
        if (name.find("lora") == std::string::npos) continue;
        float moved = 0;
        float apart = 0;
        for (std::size_t index = 0; index < before.size(); ++index) {
          moved = std::max(moved, std::abs(expected.at(name)[index] - before[index]));
          apart = std::max(apart, std::abs(expected.at(name)[index] - after.at(name)[index]));
        }
        ++adapters;
        EXPECT_GT(moved, 1e-4F) << name << " on " << placed.layout;
        EXPECT_LT(apart, 2e-3F * moved) << name << " on " << placed.layout;
      }
      EXPECT_GE(adapters, 4U * 2U * 4U);
    }
  }
}

// In a stage with a frozen layer, every second layer is recomputed if it is trained.
TEST(Finetune, EverySecondLayerIsRedoneWhicheverAreTrained) {
  for (const int trained : {1, 2, 3, -1}) {
    const PreparedStep step = prepared(fmt::format(R"({{"method": "freeze", "trainable_layers": {}}})", trained),
                                       {2, R"("tp": 2, "recompute": "full", "recompute_every": 2)"}, kGpt);
    const std::vector<RankResult> ranks = train_on_threads(planned(step, 1), {});
    const double bytes = 8 * step.costs.stages.front().sent.tp.sent_per_rank.value();
    EXPECT_DOUBLE_EQ(static_cast<double>(ranks.front().steps.front().traffic.bytes_of(Axis::kTensor)), bytes)
        << trained;
  }
}

TEST(Finetune, TrainsWhatIsNotFrozenAndNothingElse) {
  for (const std::string& method : methods()) {
    SCOPED_TRACE(method);
    TrainingPlan plan = planned(prepared(method, {4, R"("dp": 2, "pp": 2, "zero": 2)"}, kGpt, "adam"), 3);
    plan.optimizer.rate = 0.01F;
    const std::vector<RankResult> after = train_on_threads(plan, {});
    plan.optimizer.rate = 0;
    const std::map<std::string, std::vector<float>> before = whole_weights(train_on_threads(plan, {}));
    std::map<std::string, bool> frozen;
    for (const RankResult& rank : after) {
      for (const TrainedParameter& part : rank.weights) frozen[part.parameter.name] = part.parameter.frozen;
    }
    for (const auto& [name, weights] : whole_weights(after)) {
      EXPECT_EQ(weights == before.at(name), frozen.at(name)) << name;
    }
    EXPECT_LT(mean_losses(after).back(), mean_losses(after).front());
  }
}

// A whole pipeline of adapters: replicas send only the gradients of A and B, 4 bytes per element.
TEST(Finetune, OnlyGradientsOfAdaptersAreOnTheWire) {
  const PreparedStep step =
      prepared(R"({"method": "lora", "rank": 4, "targets": ["q_proj", "o_proj"]})", {2, R"("dp": 2)"});
  const double elements = 4 * (4 * (32 + 32) + 4 * (32 + 32));
  for (const RankResult& rank : train_on_threads(planned(step, 1), {})) {
    EXPECT_EQ(static_cast<double>(rank.steps.front().traffic.bytes_of(Axis::kData)), elements * kFloatBytes);
  }
  EXPECT_EQ(step.costs.ranks.front().dp.sent_per_rank.value(), elements * kFloatBytes);
}

// Memory that ranks keep between the passes, for GPT's form. Norms also keep one float per row, 1/32 of a tensor.
TEST(Finetune, KeepsWhatIsForecast) {
  for (const std::string& method : methods()) {
    for (const Placed& placed : {Placed{1, R"("dp": 1)"}, Placed{2, R"("pp": 2, "schedule": "1f1b")"},
                                 Placed{2, R"("pp": 2, "schedule": "zb-h1")"}, Placed{2, R"("tp": 2)"},
                                 Placed{1, R"("recompute": "full")"}, Placed{1, R"("recompute": "selective")"},
                                 Placed{1, R"("recompute": "selective", "recompute_modules": ["mlp"])"},
                                 Placed{1, R"("recompute": "full", "recompute_every": 2)"}}) {
      SCOPED_TRACE(fmt::format("{} on {}", method, placed.layout));
      const PreparedStep step = prepared(method, placed, kGpt);
      const std::vector<RankResult> ranks = train_on_threads(planned(step, 1), {});
      const Forecast job = forecast(step.job, no_files);
      for (const RankResult& rank : ranks) {
        const double bytes =
            memory_as_run(job).per_pipeline_rank[static_cast<std::size_t>(rank.pipeline_rank)].activations_gib * 1024 *
            1024 * 1024;
        EXPECT_NEAR(static_cast<double>(rank.peak_activation_bytes), bytes, 0.025 * bytes) << "rank " << rank.rank;
      }
    }
  }
}

std::string refusal(const std::string& finetune, const Placed& placed, const std::string& model = kLlama) {
  try {
    planned(prepared(finetune, placed, model), 1);
  } catch (const ConfigError& error) {
    return error.diagnostic().field;
  }
  return "";
}

TEST(Finetune, RefusesWhatItDoesNotTrain) {
  EXPECT_EQ(refusal(R"({"method": "lora", "rank": 3})", {2, R"("tp": 2)"}), "training.finetune.rank");
  EXPECT_EQ(refusal(R"({"method": "lora", "dropout": 0.1})", {1, R"("dp": 1)"}), "training.finetune.dropout");
  EXPECT_EQ(refusal("\"lora\"", {2, R"("dp": 2, "compression": "topk:1")"}), "layout.compression");
  const std::string latent =
      R"("mla": {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8},
      "norm": "rmsnorm", "positions": "rotary", "gated_mlp": true, "biases": false)";
  const std::string experts = std::string(kLlama) + R"(, "experts": {"count": 4, "top_k": 1, "ffn": 16})";
  EXPECT_EQ(refusal("\"lora\"", {1, R"("dp": 1)"}, latent), "model.latent_attention");
  EXPECT_EQ(refusal("\"lora\"", {1, R"("dp": 1)"}, experts), "training.finetune");
  EXPECT_EQ(refusal("\"freeze\"", {1, R"("dp": 1)"}, experts), "");
  EXPECT_EQ(refusal("\"qlora\"", {2, R"("dp": 2)"}), "") << "in a run the base is in 32 bits";
}

}  // namespace
}  // namespace flopcast::realrun
