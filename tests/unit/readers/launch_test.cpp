// Files written for other programs (import/programs/launch) are read back by our readers as the same job.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "import/programs/launch.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/readers/imports.hpp"

namespace flopcast {
namespace {

using nlohmann::json;

const ReadFile kNoFiles = [](const std::string& path) -> std::string { throw ConfigError({"", path, "", ""}); };

json job_of(const std::string& model, const json& layout, const json& training) {
  json root = {{"model", model},
               {"cluster", {{"name", "dgx-h100"}, {"nodes", 4}}},
               {"layout", {{"global_batch_size", 64}}},
               {"training", {{"sequence_length", 1024}}}};
  root["layout"].update(layout);
  root["training"].update(training);
  return root;
}

std::optional<Forecast> answer(const json& root) {
  try {
    return forecast(read_job(root, Origins()), kNoFiles);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::optional<LaunchFile> written(LaunchProgram program, const Job& job) {
  try {
    return write_launch(program, job);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "--emit");
    EXPECT_NE(error.diagnostic().problem.find("cannot express"), std::string::npos);
    return std::nullopt;
  }
}

void expect_same_layout(const Layout& a, const Layout& b, const std::string& what) {
  const auto numbers = [](const Layout& layout) {
    return std::vector<int>{layout.dp,
                            layout.tp,
                            layout.pp,
                            layout.vpp.value_or(0),
                            layout.cp,
                            layout.ep,
                            layout.micro_batch_size,
                            layout.global_batch_size,
                            layout.zero,
                            static_cast<int>(layout.sequence_parallel),
                            static_cast<int>(layout.recompute),
                            layout.recompute_layers.value_or(0),
                            static_cast<int>(layout.recompute_modules.value_or(RecomputeModules()).to_ulong()),
                            static_cast<int>(layout.context_parallel),
                            static_cast<int>(layout.partition_checkpoints),
                            static_cast<int>(layout.data_parallel),
                            static_cast<int>(layout.offload),
                            layout.group_size.value_or(0)};
  };
  EXPECT_EQ(numbers(a), numbers(b)) << what;
  EXPECT_EQ(a.stage_layers, b.stage_layers) << what;
}

void expect_same_answer(const Forecast& a, const Forecast& b, const std::string& what) {
  expect_same_layout(a.step.job.layout, b.step.job.layout, what);
  EXPECT_EQ(a.result.iteration.time_s, b.result.iteration.time_s) << what;
  EXPECT_EQ(a.result.memory.peak_gib, b.result.memory.peak_gib) << what;
  EXPECT_EQ(a.result.training.has_value(), b.result.training.has_value()) << what;
  if (a.result.training && b.result.training) {
    EXPECT_EQ(a.result.training->steps, b.result.training->steps) << what;
  }
}

TEST(Launch, MegatronReadsBackEveryModelOfTheCatalogue) {
  const std::vector<json> layouts = {
      {{"tp", 2}, {"pp", 4}, {"sequence_parallel", true}, {"recompute", "selective"}, {"zero", 1}},
      {{"pp", 2}, {"vpp", 2}, {"schedule", "interleaved"}, {"group_size", 4}, {"recompute", "full"}},
      {{"tp", 4}, {"cp", 2}, {"sequence_parallel", true}, {"zero", 2}},
      {{"tp", 2}, {"cp", 2}, {"context_parallel", "ulysses"}, {"sequence_parallel", true}, {"zero", 3}},
      {{"tp", 2}, {"cp", 2}, {"context_parallel", "allgather"}},
      {{"tp", 2}, {"pp", 2}, {"recompute", "full"}, {"partition_checkpoints", true}},
      {{"pp", 2}, {"recompute", "full"}, {"recompute_layers", 3}},
      {{"tp", 2}, {"recompute", "selective"}, {"recompute_modules", {"layernorm", "mlp"}}},
      {{"ep", 4}, {"micro_batch_size", 2}}};
  int same = 0;
  for (const std::string& model : catalogue_names(CatalogueKind::kModels)) {
    for (std::size_t index = 0; index < layouts.size(); ++index) {
      const json training = index % 2 == 0 ? json{{"precision", "fp8"}, {"tokens", "1.024B"}} : json::object();
      const std::optional<Forecast> asked = answer(job_of(model, layouts[index], training));
      if (!asked) continue;
      for (const LaunchProgram program : {LaunchProgram::kMegatron, LaunchProgram::kTorchrun}) {
        const std::optional<LaunchFile> file = written(program, asked->step.job);
        if (!file) continue;
        const std::string what = fmt::format("{} {}\n{}", model, layouts[index].dump(), file->text);
        const bool script = program == LaunchProgram::kTorchrun;
        ImportedJob imported = import_text(file->text, script ? "train.sh" : "arguments.txt");
        EXPECT_TRUE(imported.warnings.empty()) << what << imported.warnings.front();
        if (script) {
          EXPECT_EQ(imported.job["cluster"], json::parse(R"({"nodes": 4, "devices_per_node": 8})"));
        }
        imported.job["cluster"] = {{"name", "dgx-h100"}, {"nodes", 4}};
        // Keys without an argument.
        const Transformer& told = asked->step.job.model;
        if (told.whole_qk_norm) imported.job["model"]["whole_qk_norm"] = true;
        if (told.attention_sinks) imported.job["model"]["attention_sinks"] = true;
        if (told.experts && told.experts->router_bias) imported.job["model"]["experts"]["router_bias"] = true;
        const std::optional<Forecast> again = answer(imported.job);
        ASSERT_TRUE(again) << what;
        expect_same_answer(*asked, *again, what);
        ++same;
      }
    }
  }
  EXPECT_GE(same, 300);
}

TEST(Launch, MegatronIsToldUnevenEnds) {
  const std::optional<Forecast> asked =
      answer(job_of("gpt3-1.3b", {{"pp", 4}, {"stage_layers", {5, 7, 7, 5}}, {"dp", 8}}, json::object()));
  ASSERT_TRUE(asked);
  ImportedJob imported = import_text(write_launch(LaunchProgram::kMegatron, asked->step.job).text, "arguments.txt");
  imported.job["cluster"] = {{"name", "dgx-h100"}, {"nodes", 4}};
  const std::optional<Forecast> again = answer(imported.job);
  ASSERT_TRUE(again);
  expect_same_answer(*asked, *again, "5 7 7 5");
}

// Every key that changes a step and has a Megatron argument, alone and with every other.
TEST(Launch, MegatronReadsBackOverlapFormatsOffloadAndStagesToTheDigit) {
  struct Change {
    json layout = json::object();
    json training = json::object();
  };
  const std::vector<Change> changes = {
      {},
      {.training = {{"overlap", {{"gradients", false}}}}},
      {.training = {{"overlap", {{"parameters", true}}}}},
      {.training = {{"overlap", {{"p2p", false}}}}},
      {.training = {{"overlap", {{"tp", true}}}}},
      {.training = {{"gradient_dtype", "bf16"}}},
      {.training = {{"moment_dtype", "bf16"}}},
      {.training = {{"precision", "fp8"}}},
      {.training = {{"precision", "fp8"}, {"fp8_recipe", "blockwise"}, {"fp8_parameters", true}}},
      {.training = {{"precision", "fp16"}}},
      {.training = {{"optimizer", "sgd"}}},
      {.training = {{"attention", "unfused"}}},
      {.layout = {{"offload", "optimizer"}}},
      {.layout = {{"recompute", "selective"}}},
      {.layout = {{"recompute", "full"}}},
      {.layout = {{"stage_layers", {7, 8, 9, 8}}}},
      {.layout = {{"stage_layers", {7, 9, 9, 7}}}},
      {.layout = {{"schedule", "interleaved"}, {"vpp", 2}}},
      {.layout = {{"schedule", "interleaved"}, {"vpp", 2}, {"stage_layers", {3, 4, 4, 5, 4, 5, 4, 3}}}},
      {.layout = {{"schedule", "interleaved"}, {"vpp", 2}, {"group_size", 8}}},
      {.layout = {{"cp", 2}}},
      {.layout = {{"cp", 2}, {"context_parallel", "ulysses"}}},
      {.layout = {{"zero", 0}}},
      {.layout = {{"sequence_parallel", false}}},
      {.layout = {{"micro_batch_size", 2}}},
  };
  int same = 0;
  for (std::size_t first = 0; first < changes.size(); ++first) {
    for (std::size_t second = first; second < changes.size(); ++second) {
      json layout = {{"tp", 2}, {"pp", 4}, {"sequence_parallel", true}, {"zero", 1}};
      json training = json::object();
      for (const std::size_t one : {first, second}) {
        layout.merge_patch(changes[one].layout);
        training.merge_patch(changes[one].training);
      }
      const std::optional<Forecast> asked = answer(job_of("llama3-8b", layout, training));
      if (!asked) continue;
      const std::optional<LaunchFile> file = written(LaunchProgram::kMegatron, asked->step.job);
      if (!file) continue;
      const std::string what = layout.dump() + training.dump() + "\n" + file->text;
      ImportedJob imported = import_text(file->text, "arguments.txt");
      imported.job["cluster"] = {{"name", "dgx-h100"}, {"nodes", 4}};
      const std::optional<Forecast> again = answer(imported.job);
      ASSERT_TRUE(again) << what;
      expect_same_answer(*asked, *again, what);
      ++same;
    }
  }
  EXPECT_GE(same, 200);
}

TEST(Launch, SaysWhatNoArgumentTells) {
  const std::optional<Forecast> asked =
      answer(job_of("llama3-8b", {{"tp", 2}}, {{"stack", "nemo"}, {"compile", true}}));
  ASSERT_TRUE(asked);
  const LaunchFile file = write_launch(LaunchProgram::kMegatron, asked->step.job);
  EXPECT_NE(std::find(file.notes.begin(), file.notes.end(),
                      "no argument expresses training.stack nemo, training.compile, training.reduce_dtype: give it "
                      "again when reading the file back"),
            file.notes.end());
}

TEST(Launch, DeepSpeedReadsBackTheSameJob) {
  const std::vector<json> layouts = {{{"zero", 3}, {"micro_batch_size", 2}},
                                     {{"zero", 2}, {"recompute", "full"}, {"tp", 2}, {"bucket_mb", 200}},
                                     {{"zero", 1}, {"cp", 2}, {"context_parallel", "ulysses"}},
                                     {{"zero", 2}, {"offload", "optimizer"}},
                                     {{"zero", 0}, {"recompute", "full"}, {"offload", "all"}}};
  for (const json& layout : layouts) {
    for (const char* precision : {"bf16", "fp16", "fp32"}) {
      json root = job_of("llama3-8b", layout, {{"precision", precision}, {"stack", "deepspeed"}});
      root["cluster"].update({{"host_bandwidth", "32GB/s"}, {"host_memory_bandwidth", "400GB/s"}});
      const std::optional<Forecast> asked = answer(root);
      ASSERT_TRUE(asked) << layout;
      const LaunchFile file = write_launch(LaunchProgram::kDeepSpeed, asked->step.job);
      const ImportedJob imported = import_text(file.text, "ds_config.json");
      root["layout"] = imported.job["layout"];
      root["training"].update(imported.job["training"]);
      const std::optional<Forecast> again = answer(root);
      ASSERT_TRUE(again) << file.text;
      expect_same_answer(*asked, *again, file.text);
    }
  }
}

TEST(Launch, NamesAllThatAProgramCannotDo) {
  const auto message_of = [](LaunchProgram program, const json& layout) {
    const std::optional<Forecast> asked = answer(job_of("llama3-8b", layout, json::object()));
    EXPECT_TRUE(asked) << layout;
    try {
      write_launch(program, asked->step.job);
    } catch (const ConfigError& error) {
      return error.diagnostic();
    }
    return Diagnostic();
  };
  Diagnostic told = message_of(LaunchProgram::kMegatron, {{"pp", 4}, {"schedule", "zb-h1"}, {"compression", "8bit"}});
  EXPECT_EQ(told.problem, "Megatron-LM cannot express layout.compression 8bit, layout.schedule zb-h1");
  EXPECT_EQ(told.help, "give --layout.compression none; --schedules 1f1b,interleaved");
  told = message_of(LaunchProgram::kTorchrun, {{"pp", 4}, {"offload", "all"}});
  EXPECT_EQ(told.problem, "Megatron-LM cannot express layout.offload other than the optimizer's of ZeRO 1");
  told = message_of(LaunchProgram::kDeepSpeed, {{"pp", 2}, {"cp", 2}, {"tp", 2}, {"zero", 3}});
  EXPECT_EQ(told.problem,
            "DeepSpeed's configuration cannot express layout.pp 2 (pipelines are defined in code), layout.cp 2 as a "
            "ring, layout.tp with ZeRO 3");
  told = message_of(LaunchProgram::kAccelerate, {{"tp", 2}, {"recompute", "full"}});
  EXPECT_EQ(told.problem, "Accelerate's configuration cannot express layout.tp 2, layout.recompute full without FSDP");
}

}  // namespace
}  // namespace flopcast
