#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/readers/imports.hpp"

namespace flopcast {
namespace {

using nlohmann::json;

TEST(DeepSpeed, Zero3) {
  const ImportedJob imported = import_text(zero3_config(), "ds.json");
  EXPECT_EQ(imported.format->name, "DeepSpeed config");
  EXPECT_EQ(imported.job, json::parse(R"({
    "layout": {"micro_batch_size": 4, "accumulation": 8, "zero": 3, "offload": "optimizer", "bucket_mb": 954,
               "recompute": "full"},
    "training": {"precision": "bf16", "optimizer": "adam", "stack": "deepspeed", "overlap": {"gradients": true}}})"));
  EXPECT_EQ(imported.places.at("layout.zero"), "ds.json:/zero_optimization/stage");
  EXPECT_TRUE(mentions(imported.notes, "\"auto\" is treated as not set: train_batch_size"));
  EXPECT_TRUE(mentions(imported.warnings, "/sub_group_size: not modelled: assumes one pass of the optimizer"));
  EXPECT_TRUE(mentions(imported.warnings, "/stage3_param_persistence_threshold: not modelled"));
  EXPECT_TRUE(mentions(imported.notes, "no effect on the forecast: zero_optimization/contiguous_gradients"));
  EXPECT_TRUE(mentions(imported.notes, "ds.json: 23 keys: 16 read, 5 without effect, 2 not modelled, 0 unknown"));
  EXPECT_TRUE(mentions(imported.notes, "no effect on the forecast: steps_per_print"));
  EXPECT_TRUE(mentions(imported.notes, "/activation_checkpointing/partition_activations: has no effect without"));
}

TEST(DeepSpeed, ThreeBatchNumbersTellTheReplicas) {
  const json job = import_text(R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8, "fp16": {"enabled": true}})",
                               "ds.json")
                       .job;
  EXPECT_EQ(job["layout"], json::parse(R"({"dp": 8, "global_batch_size": 256, "micro_batch_size": 4})"));
  EXPECT_EQ(job["training"]["precision"], "fp16");
}

TEST(DeepSpeed, CheckpointingCountsWhereverItIsWritten) {
  for (const char* text : {R"({"train_batch_size": 8, "activation_checkpointing": {"number_checkpoints": 4}})",
                           R"({"train_batch_size": 8, "partition_activations": true})",
                           R"({"zero_optimization": {"stage": 1, "partition_activations": true}})",
                           R"({"zero_optimization": {"activation_checkpointing": {"cpu_checkpointing": true}}})"}) {
    EXPECT_EQ(import_text(text, "ds.json").job["layout"]["recompute"], "full") << text;
  }
}

// The file does not specify how many ranks share a layer; Megatron's arguments or a flag do.
TEST(DeepSpeed, PartitionedActivationsAreCutOverTensorRanks) {
  const std::string text = R"({"train_batch_size": 8, "activation_checkpointing": {"partition_activations": true}})";
  const ImportedJob cut = import_text(text, "ds.json", {"layout.tp"});
  EXPECT_EQ(cut.job["layout"]["partition_checkpoints"], true);
  EXPECT_EQ(cut.job["layout"]["recompute"], "full");
  EXPECT_TRUE(cut.warnings.empty());
  EXPECT_FALSE(import_text(text, "ds.json", {}).job["layout"].contains("partition_checkpoints"));
  const ImportedJob other = import_text(text, "ds.json", {"layout.tp", "layout.recompute"});
  EXPECT_FALSE(other.job["layout"].contains("partition_checkpoints"));
  EXPECT_TRUE(mentions(other.warnings, "--layout.partition_checkpoints"));
}

TEST(DeepSpeed, RefusesShardedGradientsWithPipelines) {
  const ImportedJob imported = import_text(zero3_config(), "ds.json");
  json job = imported.job;
  EXPECT_TRUE(refused_combinations(imported, job).empty());
  job["layout"]["pp"] = 4;
  EXPECT_TRUE(mentions(refused_combinations(imported, job), "DeepSpeed refuses ZeRO 3 together with pipeline"));
  job["layout"]["zero"] = 1;
  EXPECT_TRUE(refused_combinations(imported, job).empty());
}

TEST(DeepSpeed, ComplaintsPointIntoTheFile) {
  EXPECT_EQ(import_complaint(R"({"zero_optimization": {"stage": 4}})", "ds.json").where,
            "ds.json:/zero_optimization/stage");
  EXPECT_EQ(import_complaint(R"({"zero_optimization": {"stage": "three"}})", "ds.json").where,
            "ds.json:/zero_optimization/stage");
  EXPECT_EQ(import_complaint(R"({"zero_optimization": {"offload_optimizer": {"device": "disk"}}})", "ds.json").where,
            "ds.json:/zero_optimization/offload_optimizer/device");
  EXPECT_EQ(import_complaint(R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1})",
                             "ds.json")
                .where,
            "ds.json:/train_batch_size");
  EXPECT_EQ(import_complaint(R"({"train_batch_size": 1.5})", "ds.json").where, "ds.json:/train_batch_size");
  EXPECT_EQ(import_complaint(R"({"train_batch_size": 1, "optimizer": {"type": "OneBitAdam"}})", "ds.json").where,
            "ds.json:/optimizer/type");
  EXPECT_TRUE(
      mentions(import_text(R"({"zero_optimization": {"stge": 2}})", "ds.json").warnings, "did you mean stage?"));
}

TEST(Sizes, AreALayout) {
  const char* text = R"({"data_parallel_size":4,"pipeline_parallel_size":2,"tensor_parallel_size":4})";
  EXPECT_EQ(import_text(text, "sizes.json").job, json::parse(R"({"layout": {"dp": 4, "pp": 2, "tp": 4}})"));
  EXPECT_EQ(import_complaint(R"({"data_parallel_size":4,"pipe_parallel_size":2})", "s.json").where,
            "s.json:/pipe_parallel_size");
  EXPECT_EQ(import_complaint(R"({"data_parallel_size":0})", "s.json").where, "s.json:/data_parallel_size");
}

TEST(Accelerate, Fsdp) {
  const ImportedJob imported = import_text(R"({"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP",
    "fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_offload_params": false,
    "fsdp_activation_checkpointing": true, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
    "mixed_precision": "bf16", "num_machines": 2, "num_processes": 16})",
                                           "fsdp.yaml");
  EXPECT_EQ(imported.format->name, "Accelerate config");
  EXPECT_EQ(imported.job, json::parse(R"({"cluster": {"nodes": 2, "devices_per_node": 8},
    "layout": {"data_parallel": "fsdp", "reshard_after_forward": false, "recompute": "full"},
    "training": {"precision": "bf16", "stack": "pytorch-ddp"}})"));
  EXPECT_EQ(imported.keys.unknown.size(), 0u);
}

TEST(Accelerate, StrategiesByNumberAndHybrid) {
  const auto form = [](const char* strategy) {
    return import_text(std::string(R"({"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": )") +
                           strategy + "}}",
                       "f.yaml")
        .job["layout"]["data_parallel"];
  };
  EXPECT_EQ(form("1"), "fsdp");
  EXPECT_EQ(form("3"), "ddp");
  EXPECT_EQ(form("\"HYBRID_SHARD\""), "hsdp");
}

TEST(Accelerate, StrategiesUnderTheNewKeyAndTextBooleans) {
  const auto layout = [](const char* section) {
    return import_text(std::string(R"({"distributed_type": "FSDP", "fsdp_config": )") + section + "}", "f.yaml")
        .job["layout"];
  };
  EXPECT_EQ(layout(R"({"fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD"})"),
            json::parse(R"({"data_parallel": "fsdp"})"));
  EXPECT_EQ(layout(R"({"fsdp_reshard_after_forward": "SHARD_GRAD_OP"})"),
            json::parse(R"({"data_parallel": "fsdp", "reshard_after_forward": false})"));
  EXPECT_EQ(layout(R"({"fsdp_version": 2, "fsdp_reshard_after_forward": "false"})"),
            json::parse(R"({"data_parallel": "fsdp", "reshard_after_forward": false})"));
  EXPECT_EQ(layout(R"({"fsdp_sharding_strategy": "NO_SHARD", "fsdp_activation_checkpointing": "true"})"),
            json::parse(R"({"data_parallel": "ddp", "recompute": "full"})"));
}

TEST(Accelerate, ComplaintsPointIntoTheFile) {
  const auto where = [](const char* text) { return import_complaint(text, "f.yaml").where; };
  EXPECT_EQ(where(R"({"distributed_type": "TPU"})"), "f.yaml:/distributed_type");
  EXPECT_EQ(where(R"({"distributed_type": "FSDP", "num_machines": 3, "num_processes": 16})"), "f.yaml:/num_processes");
  EXPECT_EQ(where(R"({"distributed_type": "FSDP", "mixed_precision": "int8"})"), "f.yaml:/mixed_precision");
  EXPECT_EQ(where(R"({"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "SOME"}})"),
            "f.yaml:/fsdp_config/fsdp_sharding_strategy");
  EXPECT_EQ(where(R"({"other": 1})"), "f.yaml");
}

// The format is detected by the line starts of real YAML; the values arrive parsed.
class LlamaFactoryFiles final : public Files {
 public:
  explicit LlamaFactoryFiles(std::string values) : values_(std::move(values)) {}
  std::string read(const std::string& path) const override {
    if (path == "models/llama/config.json") return llama3_70b_config();
    if (path == "runs/ds.json") return zero3_config();
    throw ConfigError({"", "no such file", path, ""});
  }
  nlohmann::json parse_yaml(std::string_view /*text*/, const std::string& file) const override {
    return parse_json(values_, file);
  }
  nlohmann::json parse_toml(std::string_view /*text*/, const std::string& file) const override {
    return parse_json(values_, file);
  }

 private:
  std::string values_;
};

ImportedJob llama_factory(const std::string& values) {
  const LlamaFactoryFiles files(values);
  ImportContext context;
  context.files = &files;
  return import_job(ForeignFile("finetuning_type: full\n", "runs/train.yaml"), context);
}

TEST(LlamaFactory, FullFineTuning) {
  const ImportedJob imported = llama_factory(R"({"model_name_or_path": "models/llama", "stage": "sft",
    "do_train": true, "finetuning_type": "full", "deepspeed": "ds.json", "cutoff_len": 2048,
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 16, "bf16": true, "flash_attn": "fa2",
    "learning_rate": 1e-5})");
  EXPECT_EQ(imported.format->name, "LLaMA-Factory config");
  EXPECT_EQ(imported.job["model"]["layers"], 80);
  EXPECT_EQ(imported.job["layout"], json::parse(R"({"micro_batch_size": 2, "accumulation": 16, "zero": 3,
    "offload": "optimizer", "bucket_mb": 954, "recompute": "full"})"));
  EXPECT_EQ(imported.job["training"], json::parse(R"({"sequence_length": 2048, "precision": "bf16",
    "attention": "flash", "optimizer": "adam", "stack": "deepspeed", "overlap": {"gradients": true}})"));
  EXPECT_EQ(imported.places.at("layout.zero"), "runs/ds.json:/zero_optimization/stage");
}

json llama_factory_training(const std::string& more) {
  return llama_factory(R"({"model_name_or_path": "models/llama", "finetuning_type": "full", "cutoff_len": 2048, )" +
                       more + "}")
      .job["training"];
}

TEST(LlamaFactory, OptimizersByTheirStates) {
  const auto training = [](const std::string& name) {
    return llama_factory_training(fmt::format(R"("stage": "sft", "bf16": true, "optim": "{}")", name));
  };
  const auto optimizer = [&training](const std::string& name) { return training(name)["optimizer"]; };
  EXPECT_EQ(optimizer("adamw_torch"), "adam");
  EXPECT_EQ(optimizer("adamw_8bit"), "adam8bit");
  EXPECT_EQ(optimizer("paged_adamw_8bit"), "adam8bit");
  EXPECT_EQ(optimizer("paged_adamw_32bit"), "adam");
  EXPECT_EQ(optimizer("adafactor"), "adafactor");
  EXPECT_EQ(optimizer("lion_32bit"), "lion");
  EXPECT_EQ(optimizer("galore_adamw"), "galore");
  EXPECT_THROW(optimizer("lomo"), ConfigError);
  EXPECT_EQ(training("paged_adamw_8bit")["paged_optimizer"], true);
  EXPECT_FALSE(training("adamw_8bit").contains("paged_optimizer"));
}

// use_galore and use_muon override optim, whose default Trainer writes into files.
TEST(LlamaFactory, GaloreAndMuonAreFlagsOfTheirOwn) {
  const json galore = llama_factory_training(R"("pure_bf16": true, "use_galore": true, "optim": "adamw_torch")");
  EXPECT_EQ(galore["optimizer"], "galore");
  EXPECT_EQ(galore["optimizer_rank"], 16);
  EXPECT_EQ(galore["master_weights"], false);
  EXPECT_EQ(llama_factory_training(R"("use_galore": true, "galore_rank": 128)")["optimizer_rank"], 128);
  EXPECT_EQ(llama_factory_training(R"("use_muon": true)")["optimizer"], "muon");
  EXPECT_FALSE(llama_factory_training(R"("use_muon": false, "galore_rank": 8)").contains("optimizer"));
  EXPECT_THROW(llama_factory_training(R"("use_badam": true)"), ConfigError);
  const auto warns = [](const char* more) {
    const std::string text =
        R"({"model_name_or_path": "models/llama", "finetuning_type": "full", "cutoff_len": 2048, "bf16": true, )";
    return mentions(llama_factory(text + more + "}").warnings, "galore is forecast with full-precision Adam moments");
  };
  EXPECT_FALSE(warns(R"("use_galore": true, "optim": "adamw_torch")"));
  EXPECT_TRUE(warns(R"("use_galore": true, "optim": "adamw_8bit")"));
  EXPECT_TRUE(warns(R"("use_galore": true, "optim": "adafactor")"));
  EXPECT_TRUE(warns(R"("optim": "galore_adamw_8bit")"));
  EXPECT_THROW(llama_factory_training(R"("optim": "galore_adafactor")"), ConfigError);
}

TEST(LlamaFactory, StagesOfPreferences) {
  const auto method = [](const std::string& more) {
    return llama_factory_training(more).value("preference", json()).value("method", "");
  };
  EXPECT_EQ(method(R"("stage": "dpo")"), "dpo");
  EXPECT_EQ(method(R"("stage": "dpo", "pref_loss": "simpo")"), "simpo");
  EXPECT_EQ(method(R"("stage": "dpo", "pref_loss": "hinge")"), "dpo");
  EXPECT_EQ(method(R"("stage": "kto")"), "kto");
  EXPECT_EQ(method(R"("stage": "rm")"), "reward");
  EXPECT_EQ(method(R"("stage": "dpo", "use_ref_model": false)"), "dpo") << "LLaMA-Factory sets it automatically";
  EXPECT_FALSE(llama_factory_training(R"("stage": "sft", "pref_loss": "sigmoid")").contains("preference"));
  EXPECT_THROW(llama_factory_training(R"("stage": "dpo", "pref_loss": "simbo")"), ConfigError);
}

TEST(LlamaFactory, PackingIsTold) {
  const auto notes = [](const std::string& more) {
    return llama_factory(R"({"model_name_or_path": "models/llama", "cutoff_len": 2048)" + more + "}").notes;
  };
  EXPECT_TRUE(mentions(notes(""), "padded to cutoff_len"));
  EXPECT_TRUE(mentions(notes(R"(, "packing": true)"), "packed to cutoff_len"));
  EXPECT_TRUE(mentions(notes(R"(, "neat_packing": true)"), "packed to cutoff_len"));
}

TEST(LlamaFactory, AModelThatIsNotHereIsLookedUpInTheCatalogue) {
  EXPECT_EQ(llama_factory(R"({"model_name_or_path": "Qwen/Qwen3-8B"})").job["model"], "qwen3-8b");
  EXPECT_TRUE(mentions(llama_factory(R"({"model_name_or_path": "org/novel"})").warnings,
                       "give --model with a name from the catalogue"));
}

TEST(LlamaFactory, NamesOfTheHub) {
  const auto model = [](const std::string& name) {
    return llama_factory(R"({"model_name_or_path": ")" + name + "\"}").job["model"];
  };
  EXPECT_EQ(model("meta-llama/Meta-Llama-3-8B-Instruct"), "llama3-8b");
  EXPECT_EQ(model("meta-llama/Llama-2-7b-chat-hf"), "llama2-7b");
  EXPECT_EQ(model("Qwen/Qwen2.5-7B-Instruct"), "qwen2.5-7b");
}

TEST(LlamaFactory, DefaultsAreTold) {
  const ImportedJob imported = llama_factory(R"({"model_name_or_path": "Qwen/Qwen3-8B"})");
  EXPECT_EQ(imported.job["training"]["sequence_length"], 2048);
  EXPECT_EQ(imported.job["training"]["precision"], "fp32");
  EXPECT_EQ(imported.job["layout"]["micro_batch_size"], 8);
  EXPECT_TRUE(mentions(imported.notes, "is absent: uses lora"));
  EXPECT_EQ(imported.job["training"]["finetune"],
            json::parse(R"({"method": "lora", "rank": 8, "alpha": 16.0, "targets": ["all"]})"));
  EXPECT_TRUE(mentions(imported.warnings, "forecasts fp32"));
  EXPECT_TRUE(mentions(imported.notes, "cutoff_len is absent: uses 2048"));
  EXPECT_TRUE(mentions(imported.notes, "per_device_train_batch_size is absent: uses 8"));
}

TEST(LlamaFactory, AdaptersAndFrozenLayers) {
  const auto tuned = [](const std::string& values) {
    return llama_factory(R"({"model_name_or_path": "Qwen/Qwen3-8B", )" + values + "}").job["training"]["finetune"];
  };
  EXPECT_EQ(tuned(R"("finetuning_type": "lora", "lora_rank": 16, "lora_dropout": 0.1, "lora_target": "q_proj,v_proj")"),
            json::parse(R"({"method": "lora", "rank": 16, "alpha": 32.0, "dropout": 0.1,
                            "targets": ["q_proj", "v_proj"]})"));
  EXPECT_EQ(tuned(R"("quantization_bit": 4)"),
            json::parse(R"({"method": "qlora", "rank": 8, "alpha": 16.0, "base": "nf4", "double_quant": true,
                            "targets": ["all"]})"));
  EXPECT_EQ(tuned(R"("quantization_bit": 8)").at("base"), "int8");
  EXPECT_EQ(tuned(R"("finetuning_type": "freeze", "freeze_trainable_layers": -3)"),
            json::parse(R"({"method": "freeze", "trainable_layers": -3})"));
}

json tuned_by(const json& values, const char* file) {
  return import_text(values.dump(2), file).job["training"]["finetune"];
}

TEST(Adapters, OfPeft) {
  const json values = {{"peft_type", "LORA"},
                       {"base_model_name_or_path", "meta-llama/Llama-2-7b-hf"},
                       {"r", 64},
                       {"lora_alpha", 16},
                       {"lora_dropout", 0.05},
                       {"target_modules", ".*\\.(q_proj|down_proj)$"},
                       {"modules_to_save", {"embed_tokens"}}};
  const ImportedJob imported = import_text(values.dump(2), "adapter_config.json");
  EXPECT_EQ(imported.job["model"], "llama2-7b");
  EXPECT_EQ(imported.job["training"]["finetune"],
            json::parse(R"({"method": "lora", "rank": 64, "alpha": 16.0, "dropout": 0.05, "embeddings": true,
                            "targets": ["q_proj", "down_proj"]})"));
  EXPECT_THROW(import_text(R"({"peft_type": "PREFIX_TUNING"})", "adapter_config.json"), ConfigError);
}

TEST(Adapters, OfAxolotlTorchtuneAndTrl) {
  const json axolotl = {{"base_model", "NousResearch/Llama-2-7b-hf"},
                        {"adapter", "qlora"},
                        {"load_in_4bit", true},
                        {"sequence_len", 4096},
                        {"micro_batch_size", 2},
                        {"lora_r", 32},
                        {"lora_target_linear", true}};
  EXPECT_EQ(tuned_by(axolotl, "a.yaml"),
            json::parse(R"({"method": "qlora", "rank": 32, "base": "nf4", "double_quant": true, "targets": ["all"]})"));
  const json tune = {{"model",
                      {{"_component_", "torchtune.models.llama3_1.lora_llama3_1_8b"},
                       {"lora_attn_modules", {"q_proj", "output_proj"}},
                       {"apply_lora_to_mlp", true},
                       {"lora_rank", 8}}},
                     {"tokenizer", {{"_component_", "x"}}},
                     {"batch_size", 2}};
  EXPECT_EQ(tuned_by(tune, "t.yaml"), json::parse(R"({"method": "lora", "rank": 8,
    "targets": ["q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]})"));
  json whole = tune;
  whole["model"] = {{"_component_", "torchtune.models.llama3_1.llama3_1_8b"}};
  EXPECT_TRUE(tuned_by(whole, "t.yaml").is_null());
  const json trl = {{"model_name_or_path", "Qwen/Qwen2.5-7B"},
                    {"dataset_name", "d"},
                    {"learning_rate", 1e-4},
                    {"use_peft", true},
                    {"load_in_8bit", true},
                    {"lora_target_modules", "all-linear"}};
  EXPECT_EQ(tuned_by(trl, "t.yaml"), json::parse(R"({"method": "qlora", "rank": 16, "alpha": 32.0, "dropout": 0.05,
    "base": "int8", "targets": ["all"]})"));
  json all = trl;
  all["use_peft"] = false;
  EXPECT_TRUE(tuned_by(all, "t.yaml").is_null());
}

TEST(Recipes, OptimizersPreferencesAndPacking) {
  json axolotl = {{"base_model", "NousResearch/Llama-2-7b-hf"},
                  {"sequence_len", 4096},
                  {"micro_batch_size", 2},
                  {"optimizer", "muon"},
                  {"sample_packing", true},
                  {"rl", "ipo"}};
  const ImportedJob imported = import_text(axolotl.dump(2), "a.yaml");
  EXPECT_EQ(imported.job["training"]["optimizer"], "muon");
  EXPECT_EQ(imported.job["training"]["preference"]["method"], "dpo");
  EXPECT_TRUE(mentions(imported.notes, "packed to sequence_len"));
  EXPECT_TRUE(imported.keys.unknown.empty() && imported.keys.not_modelled.empty());
  axolotl["optimizer"] = "paged_adamw_8bit";
  EXPECT_EQ(import_text(axolotl.dump(2), "a.yaml").job["training"]["paged_optimizer"], true);
  axolotl["rl"] = "grpo";
  EXPECT_THROW(import_text(axolotl.dump(2), "a.yaml"), ConfigError);
  const json trl = {{"model_name_or_path", "Qwen/Qwen2.5-7B"},
                    {"dataset_name", "d"},
                    {"learning_rate", 1e-4},
                    {"optim", "galore_adamw"},
                    {"loss_type", "sigmoid"},
                    {"packing", false},
                    {"precompute_ref_log_probs", true}};
  const json training = import_text(trl.dump(2), "t.yaml").job["training"];
  EXPECT_EQ(training["optimizer"], "galore");
  EXPECT_EQ(training["preference"], json::parse(R"({"method": "dpo", "reference": false})"));
  const json tune = {{"model", {{"_component_", "torchtune.models.llama3_1.llama3_1_8b"}}},
                     {"tokenizer", {{"_component_", "x"}}},
                     {"dtype", "bf16"},
                     {"optimizer", {{"_component_", "bitsandbytes.optim.PagedAdamW8bit"}}},
                     {"batch_size", 2}};
  const json tuned = import_text(tune.dump(2), "t.yaml").job["training"];
  EXPECT_EQ(tuned["optimizer"], "adam8bit");
  EXPECT_EQ(tuned["paged_optimizer"], true);
  EXPECT_EQ(tuned["master_weights"], false);
}

TEST(Recipes, SixteenBitsThatAreOffLeaveFp32) {
  const auto trl = [](const json& more) {
    json values = {{"model_name_or_path", "Qwen/Qwen2.5-7B"}, {"dataset_name", "d"}, {"learning_rate", 1e-4}};
    values.update(more);
    return import_text(values.dump(2), "t.yaml");
  };
  const auto axolotl = [](const json& more) {
    json values = {{"base_model", "Qwen/Qwen2.5-7B"}, {"sequence_len", 4096}, {"micro_batch_size", 2}};
    values.update(more);
    return import_text(values.dump(2), "a.yaml");
  };
  const auto precision = [](const ImportedJob& imported) { return imported.job["training"].value("precision", ""); };
  EXPECT_EQ(precision(trl({{"bf16", false}})), "fp32");
  EXPECT_TRUE(
      mentions(trl({{"bf16", false}}).warnings, "t.yaml:/bf16: neither bf16 nor fp16 is enabled: forecasts fp32"));
  EXPECT_EQ(precision(trl({{"bf16", false}, {"fp16", true}})), "fp16");
  EXPECT_EQ(precision(trl({{"bf16", false}, {"dtype", "bfloat16"}})), "bf16");
  EXPECT_EQ(precision(trl({{"fp16", false}})), "bf16");
  EXPECT_EQ(precision(axolotl({{"bf16", false}})), "fp32");
  EXPECT_EQ(precision(axolotl({{"bf16", false}, {"tf32", true}})), "tf32");
  EXPECT_EQ(precision(axolotl({{"bf16", false}, {"tf32", true}, {"fp8", true}})), "fp8");
  EXPECT_EQ(precision(axolotl({{"bf16", true}, {"tf32", true}})), "bf16");
  EXPECT_TRUE(axolotl({{"bf16", "auto"}, {"tf32", true}}).keys.unknown.empty());
}

TEST(Recipes, BothOffloadsOfAxolotlHold) {
  json values = {{"base_model", "Qwen/Qwen2.5-7B"},
                 {"sequence_len", 4096},
                 {"micro_batch_size", 2},
                 {"fsdp_version", 2},
                 {"gradient_checkpointing", "offload"},
                 {"fsdp_config", {{"offload_params", true}}}};
  EXPECT_EQ(import_text(values.dump(2), "a.yaml").job["layout"]["offload"], "all");
  values["gradient_checkpointing"] = true;
  EXPECT_EQ(import_text(values.dump(2), "a.yaml").job["layout"]["offload"], "optimizer");
}

TEST(Recipes, TorchtuneShardsOverAllGpusUnlessToldSo) {
  const auto of = [](const json& more) {
    json tune = {{"model", {{"_component_", "torchtune.models.llama3_1.llama3_1_8b"}}},
                 {"tokenizer", {{"_component_", "x"}}},
                 {"batch_size", 2}};
    tune.update(more);
    return import_text(tune.dump(2), "t.yaml");
  };
  EXPECT_EQ(of(json::object()).job["layout"]["data_parallel"], "fsdp");
  EXPECT_TRUE(mentions(of(json::object()).notes, "t.yaml: layout.data_parallel is fsdp, the default of torchtune"));
  EXPECT_EQ(of({{"data_parallel_shard_dim", -1}}).job["layout"]["data_parallel"], "fsdp");
  EXPECT_FALSE(mentions(of({{"data_parallel_shard_dim", -1}}).notes, "data_parallel is"));
  EXPECT_EQ(of({{"data_parallel_shard_dim", 4}, {"data_parallel_replicate_dim", 2}}).job["layout"]["shards"], 4);
  EXPECT_EQ(of({{"data_parallel_shard_dim", 1}, {"data_parallel_replicate_dim", 2}}).job["layout"]["data_parallel"],
            "ddp");
}

TEST(Recipes, LossesOfTrlByItsTrainers) {
  const auto of = [](const json& more) {
    json trl = {{"model_name_or_path", "Qwen/Qwen2.5-7B"}, {"dataset_name", "d"}, {"learning_rate", 1e-4}};
    trl.update(more);
    return import_text(trl.dump(2), "t.yaml");
  };
  const auto preference = [&of](const json& more) { return of(more).job["training"].value("preference", json()); };
  const auto method = [&preference](const json& more) { return preference(more).value("method", ""); };
  EXPECT_EQ(method({{"loss_type", "hinge"}}), "dpo");
  EXPECT_EQ(method({{"loss_type", "simpo"}}), "simpo");
  EXPECT_EQ(method({{"loss_type", "sigmoid"}, {"cpo_alpha", 0.5}}), "simpo") << "CPO has no reference";
  EXPECT_EQ(method({{"loss_type", "sigmoid"}, {"cpo_alpha", nullptr}}), "dpo");
  EXPECT_EQ(method({{"simpo_gamma", 0.5}}), "simpo");
  EXPECT_EQ(method({{"loss_type", "kto"}}), "kto");
  EXPECT_TRUE(preference({{"loss_type", "nll"}, {"precompute_ref_log_probs", true}}).is_null());
  EXPECT_EQ(preference({{"precompute_ref_log_probs", true}}), json::parse(R"({"method": "dpo", "reference": false})"));
  const ImportedJob several = of({{"loss_type", {"ipo", "sft"}}});
  EXPECT_EQ(several.job["training"]["preference"]["method"], "dpo");
  EXPECT_TRUE(mentions(several.warnings, "t.yaml:/loss_type: not modelled: only the first loss, ipo"));
  const ImportedJob other = of({{"loss_type", "dapo"}});
  EXPECT_FALSE(other.job["training"].contains("preference"));
  EXPECT_TRUE(mentions(other.warnings, "t.yaml:/loss_type: not modelled: \"dapo\""));
  EXPECT_EQ(other.keys.not_modelled, std::vector<std::string>{"loss_type"});
}

TEST(Recipes, LossesOfTorchtuneAndRewardModelsOfAxolotl) {
  const auto torchtune = [](const std::string& loss) {
    const json tune = {{"model", {{"_component_", "torchtune.models.llama3_1.llama3_1_8b"}}},
                       {"tokenizer", {{"_component_", "x"}}},
                       {"loss", {{"_component_", loss}}},
                       {"batch_size", 2}};
    return import_text(tune.dump(2), "t.yaml");
  };
  const auto method = [](const ImportedJob& imported) {
    return imported.job["training"].value("preference", json::object()).value("method", "");
  };
  EXPECT_EQ(method(torchtune("torchtune.rlhf.loss.DPOLoss")), "dpo");
  EXPECT_EQ(method(torchtune("torchtune.rlhf.loss.SimPOLoss")), "simpo");
  const ImportedJob plain = torchtune("torchtune.modules.loss.LinearCrossEntropyLoss");
  EXPECT_EQ(method(plain), "");
  EXPECT_FALSE(mentions(plain.warnings, "/loss/_component_"));
  EXPECT_TRUE(mentions(torchtune("torchtune.rlhf.loss.PPOLoss").warnings, "t.yaml:/loss/_component_: not modelled"));
  const json axolotl = {{"base_model", "NousResearch/Llama-2-7b-hf"},
                        {"sequence_len", 4096},
                        {"micro_batch_size", 2},
                        {"reward_model", true}};
  EXPECT_EQ(method(import_text(axolotl.dump(2), "a.yaml")), "reward");
}

TEST(LlamaFactory, ComplaintsPointIntoTheFile) {
  const auto where = [](const char* values) {
    try {
      llama_factory(values);
    } catch (const ConfigError& error) {
      return error.diagnostic().where;
    }
    return std::string();
  };
  EXPECT_EQ(where(R"({"finetuning_type": "oft"})"), "runs/train.yaml:/finetuning_type");
  EXPECT_EQ(where(R"({"stage": "ppo"})"), "runs/train.yaml:/stage");
  EXPECT_EQ(where(R"({"cutoff_len": "long"})"), "runs/train.yaml:/cutoff_len");
  EXPECT_EQ(where(R"({"flash_attn": "fa9"})"), "runs/train.yaml:/flash_attn");
}

// JSON is YAML, and the values arrive parsed.
ImportedJob core(json values, const std::map<std::string, std::string>& environment = {}) {
  json model = {{"num_layers", 8},           {"hidden_size", 64},
                {"num_attention_heads", 8},  {"ffn_hidden_size", "${multiply:4, ${.hidden_size}}"},
                {"encoder_seq_length", 128}, {"max_position_embeddings", "${.encoder_seq_length}"},
                {"micro_batch_size", 2},     {"global_batch_size", 32},
                {"vocab_size", 1000}};
  model.update(values.value("model", json::object()));
  values["model"] = model;
  const LlamaFactoryFiles files(values.dump());
  ImportContext context;
  context.files = &files;
  context.environment = environment;
  return import_job(ForeignFile(values.dump(2), "train.yaml"), context);
}

TEST(MegatronYaml, ANemoConfigurationIsRead) {
  const ImportedJob imported = core({{"trainer", {{"num_nodes", 2}, {"devices", 8}, {"precision", "bf16-mixed"}}},
                                     {"model",
                                      {{"tensor_model_parallel_size", 2},
                                       {"pipeline_model_parallel_size", 4},
                                       {"virtual_pipeline_model_parallel_size", 2},
                                       {"sequence_parallel", true},
                                       {"num_query_groups", 4},
                                       {"activation", "fast-swiglu"},
                                       {"normalization", "rmsnorm"},
                                       {"bias", false},
                                       {"position_embedding_type", "rope"},
                                       {"activations_checkpoint_granularity", "selective"},
                                       {"activations_checkpoint_num_layers", 0},
                                       {"fp8", false},
                                       {"fp8_hybrid", true},
                                       {"hidden_dropout", 0.0},
                                       {"attention_dropout", 0.0},
                                       {"optim", {{"name", "distributed_fused_adam"}, {"overlap_grad_sync", true}}},
                                       {"sharp", true},
                                       {"quux", 1}}}});
  EXPECT_EQ(imported.format->name, "NeMo or Megatron-Bridge YAML");
  EXPECT_EQ(imported.job["cluster"], json::parse(R"({"nodes": 2, "devices_per_node": 8})"));
  EXPECT_EQ(imported.job["model"], json::parse(R"({"layers": 8, "hidden": 64, "heads": 8, "kv_heads": 4, "ffn": 256,
    "vocab": 1000, "sequence_length": 128, "gated_mlp": true, "biases": false, "dropout": false, "norm": "rmsnorm",
    "positions": "rotary", "tied_embeddings": true})"));
  EXPECT_EQ(imported.job["layout"], json::parse(R"({"tp": 2, "pp": 4, "vpp": 2, "sequence_parallel": true,
    "micro_batch_size": 2, "global_batch_size": 32, "schedule": "interleaved", "recompute": "selective", "zero": 1})"));
  EXPECT_EQ(imported.job["training"], json::parse(R"({"sequence_length": 128, "precision": "bf16", "optimizer": "adam",
    "stack": "nemo", "overlap": {"gradients": true}})"));
  EXPECT_EQ(imported.places.at("layout.tp"), "train.yaml:/model/tensor_model_parallel_size");
  EXPECT_EQ(imported.keys.unknown, std::vector<std::string>{"model/quux"});
  EXPECT_TRUE(mentions(imported.warnings, "/model/sharp: not modelled"));
}

TEST(MegatronYaml, MixedPrecisionAndOverlapHaveTheLastWord) {
  const json job = core({{"train", {{"train_iters", 10}}},
                         {"model",
                          {{"fp8", "e4m3"},
                           {"fp8_recipe", "delayed"},
                           {"should_pad_vocab", false},
                           {"make_vocab_size_divisible_by", 64}}},
                         {"ddp",
                          {{"overlap_grad_reduce", true},
                           {"use_distributed_optimizer", true},
                           {"data_parallel_sharding_strategy", "no_shard"}}},
                         {"comm_overlap", {{"overlap_grad_reduce", false}}},
                         {"mixed_precision", {{"bf16", true}, {"fp8", "hybrid"}, {"fp8_recipe", "blockwise"}}}})
                       .job;
  EXPECT_EQ(job["training"]["fp8_recipe"], "blockwise");
  EXPECT_EQ(job["training"]["precision"], "fp8");
  EXPECT_EQ(job["training"]["overlap"]["gradients"], false);
  EXPECT_EQ(job["layout"]["zero"], 1);
  EXPECT_EQ(job["model"]["vocab"], 1000);
}

TEST(MegatronYaml, ValuesComeFromTheEnvironmentOrAreAskedFor) {
  const json values = {
      {"train", {{"train_iters", 10}}},
      {"model", {{"tensor_model_parallel_size", "${TP}"}, {"pipeline_model_parallel_size", "${oc.env:PP,2}"}}}};
  EXPECT_EQ(core(values, {{"TP", "4"}}).job["layout"]["tp"], 4);
  EXPECT_EQ(core(values, {{"TP", "4"}}).job["layout"]["pp"], 2);
  try {
    core(values);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().where, "train.yaml:/model/tensor_model_parallel_size");
    EXPECT_NE(error.diagnostic().problem.find("$TP"), std::string::npos);
    EXPECT_NE(error.diagnostic().help.find("--layout.tp"), std::string::npos);
  }
  const json round = {{"train", {{"train_iters", 10}}}, {"model", {{"hidden_size", "${.ffn_hidden_size}"}}}};
  EXPECT_THROW(core(round), ConfigError);
}

TEST(MegatronYaml, OtherModelsAndPartsOfTheWeightsAreRefused) {
  for (const json& more : {json{{"encoder", {{"num_layers", 4}}}}, json{{"mm_cfg", {{"llm", 1}}}},
                           json{{"peft", {{"peft_scheme", "ptuning"}}}}, json{{"hybrid_override_pattern", "M-M*"}}}) {
    EXPECT_THROW(core({{"trainer", {{"devices", 8}}}, {"model", more}}), ConfigError) << more.dump();
  }
}

TEST(MegatronYaml, AdaptersOfNemo) {
  json model = {{"num_layers", 4},
                {"hidden_size", 1024},
                {"num_attention_heads", 16},
                {"encoder_seq_length", 1024},
                {"micro_batch_size", 1},
                {"global_batch_size", 8},
                {"peft", {{"peft_scheme", "lora"}, {"lora_tuning", {{"adapter_dim", 16}}}}}};
  const auto tuned = [&model] {
    return core({{"trainer", {{"devices", 8}}}, {"model", model}}).job["training"]["finetune"];
  };
  EXPECT_EQ(tuned(), json::parse(R"({"method": "lora", "rank": 16, "targets": ["q_proj", "k_proj", "v_proj"]})"));
  model["peft"]["lora_tuning"]["target_modules"] = {"attention_dense", "mlp_fc2"};
  EXPECT_EQ(tuned()["targets"], json::parse(R"(["o_proj", "down_proj"])"));
  model["peft"] = {{"peft_scheme", nullptr}, {"lora_tuning", {{"adapter_dim", 16}}}};
  EXPECT_TRUE(tuned().is_null());
}

ImportedJob titan(const json& values, const std::set<std::string>& given = {}) {
  return import_text(values.dump(), "train.toml", given);
}

TEST(Torchtitan, ARecipeIsRead) {
  json values = {{"model", {{"name", "llama3"}, {"flavor", "70B"}, {"converters", {"float8"}}}},
                 {"training", {{"seq_len", 8192}, {"local_batch_size", 8}}},
                 {"parallelism",
                  {{"data_parallel_shard_degree", 16},
                   {"data_parallel_replicate_degree", 2},
                   {"tensor_parallel_degree", 8},
                   {"pipeline_parallel_degree", 4},
                   {"pipeline_parallel_microbatch_size", 2},
                   {"pipeline_parallel_schedule", "Interleaved1F1B"},
                   {"enable_async_tensor_parallel", true}}},
                 {"activation_checkpoint", {{"mode", "full"}}},
                 {"compile", {{"enable", true}}}};
  const ImportedJob imported = titan(values);
  EXPECT_EQ(imported.job, json::parse(R"({"model": "llama3-70b",
    "layout": {"tp": 8, "pp": 4, "vpp": 2, "dp": 32, "data_parallel": "hsdp", "shards": 16, "sequence_parallel": true,
               "schedule": "interleaved", "micro_batch_size": 2, "accumulation": 4, "recompute": "full",
               "reshard_after_forward": false},
    "training": {"sequence_length": 8192, "precision": "fp8", "stack": "torchtitan", "compile": true,
                 "overlap": {"tp": true}}})"));
  EXPECT_EQ(imported.keys.unknown.size(), 0u);
  values["parallelism"]["data_parallel_shard_degree"] = -1;
  EXPECT_THROW(titan(values), ConfigError);
  values["parallelism"]["data_parallel_replicate_degree"] = 1;
  EXPECT_EQ(titan(values).job["layout"]["data_parallel"], "fsdp");
  values["training"]["global_batch_size"] = 512;
  EXPECT_EQ(titan(values).job["layout"]["global_batch_size"], 512);
  EXPECT_FALSE(titan(values).job["layout"].contains("accumulation"));
  values["training"]["local_batch_size"] = 7;
  EXPECT_THROW(titan(values), ConfigError);
  values["training"].erase("local_batch_size");
  values["model"]["flavor"] = "debugmodel";
  EXPECT_THROW(titan(values), ConfigError);
  EXPECT_FALSE(titan(values, {"model"}).job.contains("model"));
}

TEST(Torchtitan, FormatsOfProductsAndOfWeights) {
  const auto training = [](const json& more) {
    json values = {{"model", {{"name", "llama3"}, {"flavor", "8B"}}},
                   {"training", {{"seq_len", 8192}, {"local_batch_size", 1}}}};
    values.merge_patch(more);
    return titan(values).job["training"];
  };
  const json written = {{"training", {{"mixed_precision_param", "bfloat16"}}}};
  EXPECT_EQ(training(written)["precision"], "bf16");
  json converted = written;
  converted["model"] = {{"converters", {"float8"}}};
  EXPECT_EQ(training(converted)["precision"], "fp8");
  json linear = written;
  linear["float8"] = {{"enable_float8_linear", true}};
  EXPECT_EQ(training(linear)["precision"], "fp8");
  EXPECT_FALSE(training({{"training", {{"dtype", "float32"}}}}).contains("master_weights"));
  const json pure = training({{"training", {{"dtype", "bfloat16"}}}});
  EXPECT_EQ(pure["master_weights"], false);
  EXPECT_EQ(pure["gradient_dtype"], "bf16");
  EXPECT_EQ(pure["moment_dtype"], "bf16");
  EXPECT_EQ(pure["reduce_dtype"], "fp32") << "mixed_precision_reduce";
}

TEST(Torchtitan, EveryNthLayerIsRecomputedWhole) {
  const auto layout = [](const json& checkpoint) {
    return titan({{"model", {{"name", "llama3"}, {"flavor", "8B"}}},
                  {"training", {{"seq_len", 8192}, {"local_batch_size", 1}}},
                  {"activation_checkpoint", checkpoint}})
        .job["layout"];
  };
  EXPECT_EQ(layout({{"mode", "selective"}, {"selective_ac_option", "2"}})["recompute"], "full");
  EXPECT_EQ(layout({{"mode", "selective"}, {"selective_ac_option", "2"}})["recompute_every"], 2);
  EXPECT_EQ(layout({{"mode", "selective"}, {"selective_ac_option", "op"}})["recompute"], "selective");
  EXPECT_FALSE(layout({{"mode", "full"}, {"selective_ac_option", "2"}}).contains("recompute_every"));
  EXPECT_THROW(layout({{"mode", "selective"}, {"selective_ac_option", "some"}}), ConfigError);
}

TEST(LlamaFactory, TheSecondSchemaHasDefaultsOfItsOwn) {
  json values = {{"model", "Qwen/Qwen3-8B"},
                 {"train_dataset", "d.yaml"},
                 {"dist_config", {{"name", "fsdp2"}, {"dcp_path", nullptr}}},
                 {"quant_config", nullptr},
                 {"global_batch_size", 64}};
  const ImportedJob imported = import_text(values.dump(2), "v1.yaml");
  EXPECT_EQ(imported.job, json::parse(R"({"model": "qwen3-8b",
    "layout": {"data_parallel": "fsdp", "micro_batch_size": 1, "global_batch_size": 64, "recompute": "full"},
    "training": {"sequence_length": 2048, "precision": "bf16", "stack": "pytorch-fsdp"}})"));
  EXPECT_TRUE(imported.warnings.empty());
  values["peft_config"] = {{"name", "lora"}, {"r", 16}};
  EXPECT_EQ(import_text(values.dump(2), "v1.yaml").job["training"]["finetune"],
            json::parse(R"({"method": "lora", "rank": 16, "targets": ["all"]})"));
  values["peft_config"] = {{"name", "freeze"}, {"freeze_trainable_layers", 1}};
  EXPECT_EQ(import_text(values.dump(2), "v1.yaml").job["training"]["finetune"],
            json::parse(R"({"method": "freeze", "trainable_layers": 1})"));
  values["peft_config"] = {{"name", "oft"}};
  EXPECT_THROW(import_text(values.dump(2), "v1.yaml"), ConfigError);
}

TEST(Torchtitan, OlderRecipesCountMicrobatches) {
  const json job = titan({{"model", {{"name", "llama2"}, {"flavor", "7B"}}},
                          {"training", {{"seq_len", 2048}, {"batch_size", 8}, {"tensor_parallel_degree", 1}}},
                          {"experimental", {{"pipeline_parallel_degree", 2}, {"pipeline_parallel_microbatches", 4}}}})
                       .job;
  EXPECT_EQ(job["layout"]["micro_batch_size"], 2);
  EXPECT_EQ(job["layout"]["accumulation"], 4);
}

TEST(Formats, AreToldApart) {
  EXPECT_EQ(format_of(ForeignFile(R"({"model": "gpt3-175b"})", "job.json")).name, "flopcast job file");
  EXPECT_EQ(format_of(ForeignFile("// a job\n{\"layout\": {}}", "job.json")).name, "flopcast job file");
  EXPECT_EQ(format_of(ForeignFile("{broken", "config.json")).name, "flopcast job file");
  EXPECT_EQ(format_of(ForeignFile("", "empty")).name, "flopcast job file");
  EXPECT_EQ(format_of(ForeignFile("model_name_or_path: x\n", "a.yml")).name, "LLaMA-Factory config");
  EXPECT_EQ(format_of(ForeignFile("distributed_type: FSDP\n", "a.yaml")).name, "Accelerate config");
  EXPECT_EQ(format_of(ForeignFile("torchrun x.py --num-layers 2", "launch")).name, "Megatron-LM arguments");
}

TEST(Formats, AVocabularyIsNoJob) {
  EXPECT_NE(import_complaint(R"({"model": 17, "a": 1, "the": 2, "of": 3, "layer": 4})", "vocab.json")
                .problem.find("does not contain a job"),
            std::string::npos);
}

TEST(Formats, YamlNeedsAReader) {
  EXPECT_THROW(import_job(ForeignFile("distributed_type: FSDP\n", "a.yaml"), {}), ConfigError);
}

}  // namespace
}  // namespace flopcast
