// Tests the tables of import/keys: what a key's class claims must be true.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "import/programs/foreign_keys.hpp"
#include "tests/unit/readers/imports.hpp"

namespace flopcast {
namespace {

using nlohmann::json;

// A program's file without and with a key.
struct Base {
  const char* table;
  std::string file;
  json values;  ///< of Megatron's arguments: by name
};

std::string text_of(const Base& base) {
  // A recipe is recognised by the keys at its line starts.
  if (std::string(base.table) == "llama_factory") {
    std::string lines;
    for (const auto& item : base.values.items()) lines += item.key() + ": " + item.value().dump() + "\n";
    return lines;
  }
  if (std::string(base.table) == "megatron_yaml") return base.values.dump(2);
  if (std::string(base.table) != "megatron") return base.values.dump();
  std::string text = "torchrun pretrain_gpt.py";
  for (const auto& item : base.values.items()) {
    text += " --" + item.key();
    if (item.value() != true)
      text += " " + (item.value().is_string() ? "'" + item.value().get<std::string>() + "'" : item.value().dump());
  }
  return text;
}

json megatron_base(const json& more) {
  json values = {{"num-layers", 8},    {"hidden-size", 64},     {"num-attention-heads", 8}, {"seq-length", 128},
                 {"vocab-size", 1000}, {"micro-batch-size", 1}, {"global-batch-size", 8}};
  values.update(more);
  for (const auto& item : more.items()) {
    if (item.value().is_null()) values.erase(item.key());
  }
  return values;
}

std::vector<Base> bases() {
  const auto megatron = [](const json& more) { return Base{"megatron", "a.sh", megatron_base(more)}; };
  const auto core = [](const json& more, const json& trainer) {
    json model = {{"num_layers", 8},           {"hidden_size", 64},  {"num_attention_heads", 8},
                  {"encoder_seq_length", 128}, {"vocab_size", 1000}, {"micro_batch_size", 1},
                  {"global_batch_size", 16}};
    model.update(more);
    json values = {{"model", model}, {"trainer", trainer}};
    values["trainer"].update(json{{"num_nodes", 2}, {"devices", 8}});
    return Base{"megatron_yaml", "core.yaml", values};
  };
  const json hf = {{"num_hidden_layers", 8},   {"hidden_size", 64},  {"num_attention_heads", 8},
                   {"intermediate_size", 128}, {"vocab_size", 1000}, {"max_position_embeddings", 2048}};
  const auto config = [&hf](const json& more) {
    json values = hf;
    values.update(more);
    for (const auto& item : more.items()) {
      if (item.value().is_null()) values.erase(item.key());
    }
    return Base{"hugging_face", "config.json", values};
  };
  return {
      megatron(json::object()),
      megatron({{"tuner-type", "lora"}}),
      megatron({{"tensor-model-parallel-size", 2},
                {"pipeline-model-parallel-size", 4},
                {"recompute-granularity", "full"},
                {"context-parallel-size", 2},
                {"train-iters", 10}}),
      megatron({{"num-experts", 8},
                {"moe-expert-capacity-factor", 1},
                {"num-query-groups", 2},
                {"use-megatron-fsdp", true}}),
      megatron({{"num-experts", 8},
                {"expert-model-parallel-size", 4},
                {"tensor-model-parallel-size", 2},
                {"sequence-parallel", true},
                {"overlap-moe-expert-parallel-comm", true}}),
      megatron({{"deepspeed", true},
                {"checkpoint-activations", true},
                {"tensor-model-parallel-size", 2},
                {"global-batch-size", nullptr}}),
      megatron({{"pipeline-model-parallel-size", 4}, {"num-layers", 14}}),
      megatron({{"pipeline-model-parallel-size", 4},
                {"num-virtual-stages-per-pipeline-rank", 2},
                {"enable-zero-bubble", true}}),
      megatron({{"pipeline-model-parallel-size", 4}, {"zero-bubble-v-schedule", true}}),
      megatron({{"multi-latent-attention", true},
                {"kv-lora-rank", 16},
                {"group-query-attention", true},
                {"optimizer-cpu-offload", true}}),
      megatron({{"vocab-size", nullptr}}),
      megatron({{"window-size", "(63,0)"}}),
      megatron({{"context-parallel-size", 4}, {"cp-comm-type", "a2a+p2p"}}),
      megatron({{"fp8-format", "hybrid"}, {"bf16", true}}),
      megatron({{"vocab-size", nullptr}, {"vocab-file", "v.json"}, {"merge-file", "m.txt"}}),
      config({{"model_type", "llama"}}),
      config({{"model_type", "mixtral"}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}}),
      config({{"model_type", "deepseek_v3"},
              {"n_routed_experts", 8},
              {"num_experts_per_tok", 2},
              {"moe_intermediate_size", 32},
              {"kv_lora_rank", 8},
              {"qk_nope_head_dim", 8},
              {"qk_rope_head_dim", 8},
              {"sliding_window", 64}}),
      config(
          {{"model_type", "falcon"}, {"intermediate_size", nullptr}, {"num_hidden_layers", nullptr}, {"n_layers", 4}}),
      config({{"model_type", "mpt"},
              {"intermediate_size", nullptr},
              {"hidden_size", nullptr},
              {"n_embd", 64},
              {"num_attention_heads", nullptr},
              {"n_head", 4},
              {"max_position_embeddings", nullptr},
              {"vocab_size", nullptr},
              {"padded_vocab_size", 100}}),
      config({{"model_type", "chatglm"}, {"multi_query_attention", true}, {"multi_query_group_num", 2}}),
      config({{"model_type", "dbrx"},
              {"attn_config", {{"kv_n_heads", 2}}},
              {"ffn_config", {{"moe_num_experts", 4}, {"moe_top_k", 2}}}}),
      config({{"model_type", "falcon"}, {"num_kv_heads", 2}}),
      config({{"model_type", "opt"}}),
      config({{"model_type", "bert"}}),
      config({{"model_type", nullptr}, {"architectures", {"LlamaForCausalLM"}}}),
      config({{"model_type", "gpt_neo"}, {"attention_types", json::parse(R"([[["global", "local"], 4]])")}}),
      config({{"model_type", "gemma2"}}),
      config({{"model_type", "stablelm"}}),
      config({{"model_type", "falcon"}, {"new_decoder_architecture", true}}),
      config({{"model_type", "qwen2"}, {"use_sliding_window", true}, {"sliding_window", 64}}),
      config({{"model_type", "llama4_text"}, {"attention_chunk_size", 64}}),
      {"deepspeed",
       "ds.json",
       {{"steps_per_print", 1},
        {"zero_optimization",
         {{"stage", 2}, {"offload_optimizer", {{"pin_memory", true}}}, {"offload_param", {{"pin_memory", true}}}}},
        {"bf16", {{"loss_scale", 0}}},
        {"bfloat16", {{"loss_scale", 0}}},
        {"fp16", {{"loss_scale", 0}}},
        {"tensor_parallel", json::object()},
        {"activation_checkpointing", json::object()},
        {"optimizer", json::object()}}},
      {"accelerate",
       "a.yaml",
       {{"distributed_type", "FSDP"},
        {"num_processes", 8},
        {"fsdp_config", {{"fsdp_version", 1}}},
        {"parallelism_config", {{"parallelism_config_dp_shard_size", 2}}}}},
      {"accelerate",
       "a.yaml",
       {{"distributed_type", "DEEPSPEED"},
        {"num_processes", 8},
        {"deepspeed_config", {{"zero_stage", 1}}},
        {"parallelism_config", {{"parallelism_config_dp_replicate_size", 2}}}}},
      {"llama_factory",
       "l.yaml",
       {{"model_name_or_path", "Qwen/Qwen3-8B"},
        {"finetuning_type", "full"},
        {"do_train", true},
        {"cutoff_len", 1024},
        {"tensor_model_parallel_size", 2}}},
      {"gpt_neox",
       "n.yml",
       {{"num_layers", 4},
        {"hidden_size", 64},
        {"num_attention_heads", 4},
        {"model_parallel_size", 2},
        {"pipe_parallel_size", 1},
        {"train_micro_batch_size_per_gpu", 2},
        {"seq_length", 64}}},
      {"nanotron",
       "n.yaml",
       {{"model", {{"model_config", {{"num_hidden_layers", 4}, {"hidden_size", 64}, {"num_attention_heads", 4}}}}},
        {"parallelism", {{"dp", 2}, {"tp", 2}}},
        {"tokens", {{"micro_batch_size", 2}}}}},
      core({{"activations_checkpoint_granularity", "full"}}, {{"precision", "bf16"}}),
      core({{"pipeline_model_parallel_size", 4}, {"num_layers", 14}, {"fp8", true}}, {{"precision", "bf16"}}),
      core({{"vocab_size", nullptr}, {"activations_checkpoint_method", "uniform"}}, json::object()),
      {"torchtitan",
       "t.toml",
       {{"model", {{"name", "llama3"}, {"flavor", "8B"}}},
        {"training", {{"seq_len", 1024}, {"local_batch_size", 4}}},
        {"parallelism",
         {{"tensor_parallel_degree", 2}, {"pipeline_parallel_degree", 2}, {"expert_parallel_degree", 2}}}}},
      {"torchtitan",
       "t.toml",
       {{"model", {{"name", "llama3"}, {"flavor", "8B"}}},
        {"training", {{"seq_len", 1024}}},
        {"experimental", {{"pipeline_parallel_degree", 2}}}}},
      {"llama_factory_v1",
       "v.yaml",
       {{"model", "Qwen/Qwen3-8B"},
        {"train_dataset", "d.yaml"},
        {"mp_shard_size", 2},
        {"dist_config", json::object()},
        {"peft_config", json::object()},
        {"optim_config", json::object()},
        {"quant_config", json::object()}}},
      {"axolotl", "x.yml", {{"base_model", "Qwen/Qwen3-8B"}, {"micro_batch_size", 2}, {"sequence_len", 1024}}},
      {"axolotl",
       "x.yml",
       {{"base_model", "Qwen/Qwen3-8B"}, {"micro_batch_size", 2}, {"sequence_len", 1024}, {"adapter", "lora"}}},
      {"llama_factory",
       "l.yaml",
       {{"model_name_or_path", "Qwen/Qwen3-8B"}, {"finetuning_type", "lora"}, {"quantization_bit", 4}}},
      {"llama_factory", "l.yaml", {{"model_name_or_path", "Qwen/Qwen3-8B"}, {"finetuning_type", "freeze"}}},
      {"llama_factory_v1",
       "v.yaml",
       {{"model", "Qwen/Qwen3-8B"},
        {"train_dataset", "d.yaml"},
        {"peft_config", {{"name", "lora"}}},
        {"quant_config", {{"name", "bnb"}, {"quantization_bit", 4}}}}},
      {"llama_factory_v1",
       "v.yaml",
       {{"model", "Qwen/Qwen3-8B"}, {"train_dataset", "d.yaml"}, {"peft_config", {{"name", "freeze"}}}}},
      {"trl",
       "t.yaml",
       {{"model_name_or_path", "Qwen/Qwen3-8B"},
        {"dataset_name", "d"},
        {"learning_rate", 0.1},
        {"use_peft", true},
        {"load_in_4bit", true}}},
      {"torchtune",
       "t.yaml",
       {{"model", {{"_component_", "torchtune.models.llama3_1.qlora_llama3_1_8b"}}},
        {"tokenizer", {{"_component_", "x"}}},
        {"batch_size", 2}}},
      {"torchtune",
       "t.yaml",
       {{"model", {{"_component_", "torchtune.models.llama3_1.lora_llama3_1_8b"}, {"lora_attn_modules", {"q_proj"}}}},
        {"tokenizer", {{"_component_", "x"}}},
        {"optimizer", {{"_component_", "torch.optim.AdamW"}}},
        {"batch_size", 2}}},
      {"peft", "adapter_config.json", {{"peft_type", "LORA"}}},
  };
}

const std::vector<json>& candidates() {
  static const std::vector<json> values = {2,
                                           4,
                                           3,
                                           1,
                                           16,
                                           0,
                                           0.5,
                                           true,
                                           false,
                                           "true",
                                           "full",
                                           "selective",
                                           "none",
                                           "bf16",
                                           "fp16",
                                           "fp8",
                                           "tensorwise",
                                           "bfloat16",
                                           "flash",
                                           "unfused",
                                           "disabled",
                                           "sgd",
                                           "adam",
                                           "a2a",
                                           "2 2",
                                           "optim",
                                           "rope",
                                           "alibi",
                                           "RMSNorm",
                                           "rmsnorm",
                                           "hybrid",
                                           "cpu",
                                           "FSDP",
                                           "DEEPSPEED",
                                           "gpu:4",
                                           "[0]*2+[1]*6",
                                           "multiquery",
                                           "GPT2BPETokenizer",
                                           "half",
                                           "block",
                                           "core_attn mlp",
                                           "tttt|tttt",
                                           "x",
                                           "SHARD_GRAD_OP",
                                           "REDUCE_SCATTER",
                                           "afab",
                                           "gelu",
                                           "silu",
                                           "swiglu",
                                           "rotary",
                                           "lora",
                                           "dpo",
                                           "qlora",
                                           "sft",
                                           "mamba",
                                           "full_shard",
                                           "gmlp",
                                           "bert",
                                           "auto",
                                           json::array({"mamba"}),
                                           json::array({0, 1, 0, 1, 0, 1, 0, 1}),
                                           {{"tp", 1}},
                                           {{"alibi", true}},
                                           {{"ffn_hidden_size", 32}},
                                           json::array({"BertModel"}),
                                           json::array({json::array({"global"})}),
                                           json::array({1, 2}),
                                           json::array({"q_proj", "lm_head"}),
                                           "torch.optim.SGD",
                                           "float32",
                                           "Qwen/Qwen2.5-7B",
                                           "lm_head"};
  return values;
}

// The job, or its error, and the messages about the key.
json answer(const Base& base, const std::string& key) {
  try {
    const ImportedJob imported = import_text(text_of(base), base.file, {"cluster"});
    std::vector<std::string> about;
    for (const auto* sentences : {&imported.notes, &imported.warnings}) {
      for (const std::string& sentence : *sentences) {
        if (sentence.find(key) != std::string::npos && sentence.find("no effect on the forecast") == std::string::npos)
          about.push_back(sentence);
      }
    }
    return {{"job", imported.job}, {"about", about}};
  } catch (const ConfigError& error) {
    return {{"complaint", error.diagnostic().problem + error.diagnostic().field}};
  }
}

// Positions of a key: the file itself, and the objects in it. A path specifies its own position.
std::vector<json> with(const Base& base, const std::string& key, const json& value) {
  std::vector<json> all;
  if (key.find('/') != std::string::npos) {
    json values = base.values;
    values[json::json_pointer("/" + key)] = value;
    return {values};
  }
  json values = base.values;
  values[key] = value;
  all.push_back(values);
  const std::function<void(json::json_pointer)> enter = [&](const json::json_pointer& at) {
    for (const auto& item : base.values.at(at).items()) {
      if (!item.value().is_object()) continue;
      json inside = base.values;
      inside[at / item.key()][key] = value;
      all.push_back(inside);
      enter(at / item.key());
    }
  };
  if (std::string(base.table) != "megatron") enter(json::json_pointer());
  return all;
}

bool changes_something(const std::string& table, const std::string& key) {
  for (Base base : bases()) {
    if (table != base.table) continue;
    const json before = answer(base, key);
    const Base original = base;
    for (const json& value : candidates()) {
      for (const json& values : with(original, key, value)) {
        base.values = values;
        if (answer(base, key) != before) return true;
      }
    }
    // If the base contains the key, removes it.
    base.values = original.values;
    if (base.values.erase(key) > 0 && answer(base, key) != before) return true;
  }
  return false;
}

TEST(Keys, WhatIsReadChangesTheJob) {
  for (const EmbeddedFile& file : embedded_keys()) {
    const std::string table(file.path.substr(0, file.path.find('.')));
    for (const auto& [key, entry] : KeyTable::of(table).entries()) {
      if (entry.kind != KeyTable::Kind::kRead) continue;
      EXPECT_TRUE(changes_something(table, key)) << table << ": " << key;
    }
  }
}

TEST(Keys, WhatHasNoEffectChangesNothingAndWhatIsNotModelledIsToldOf) {
  for (const EmbeddedFile& file : embedded_keys()) {
    const std::string table(file.path.substr(0, file.path.find('.')));
    const auto all = bases();
    const auto base = std::find_if(all.begin(), all.end(), [&](const Base& each) { return table == each.table; });
    ASSERT_NE(base, all.end()) << table;
    const json before = import_text(text_of(*base), base->file, {"cluster"}).job;
    for (const auto& [key, entry] : KeyTable::of(table).entries()) {
      EXPECT_FALSE(entry.source.empty() && entry.kind == KeyTable::Kind::kNoEffect) << key;
      const bool is_family = key.back() == '*' || key.find('/') != std::string::npos;
      if (is_family || entry.kind == KeyTable::Kind::kRead) continue;
      Base changed = *base;
      changed.values[key] = "something";
      if (entry.kind == KeyTable::Kind::kRefused) {
        EXPECT_NE(answer(changed, key).value("complaint", "").find(key), std::string::npos) << table << ": " << key;
        continue;
      }
      const ImportedJob imported = import_text(text_of(changed), changed.file, {"cluster"});
      EXPECT_EQ(imported.job, before) << table << ": " << key;
      const bool is_silent = entry.kind == KeyTable::Kind::kNoEffect;
      const auto& list = is_silent ? imported.keys.no_effect : imported.keys.not_modelled;
      EXPECT_TRUE(mentions(list, key)) << table << ": " << key;
      if (!is_silent) {
        EXPECT_TRUE(mentions(imported.warnings, entry.why)) << table << ": " << key;
      }
    }
  }
}

TEST(Keys, AnUnknownWordIsAWarningWithTheNearestOne) {
  Base base = bases().front();
  base.values["num-layerz"] = 3;
  base.values["quux"] = 3;
  const ImportedJob imported = import_text(text_of(base), base.file, {});
  EXPECT_EQ(imported.keys.unknown.size(), 2u);
  EXPECT_TRUE(mentions(imported.warnings, "--num-layerz: unknown key, ignored; did you mean num-layers?"));
  EXPECT_TRUE(mentions(imported.warnings, "--quux: unknown key, ignored"));
  EXPECT_TRUE(mentions(imported.notes, "2 unknown"));
}

}  // namespace
}  // namespace flopcast
