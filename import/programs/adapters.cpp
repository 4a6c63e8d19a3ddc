// Fine-tuning as programs based on PEFT describe it, and PEFT's own adapter_config.json.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "model/workload/finetune.hpp"

namespace flopcast {

namespace {

// "model.layers.*.self_attn.q_proj" -> "q_proj"
std::string name_in_path(const std::string& word) {
  const std::size_t dot = word.rfind('.');
  return dot == std::string::npos ? word : word.substr(dot + 1);
}

// The linears named by a list, a comma-separated text or an expression. An expression is searched for known names.
std::vector<std::string> words_of(const nlohmann::json& targets) {
  std::vector<std::string> words;
  if (targets.is_array()) {
    for (const nlohmann::json& target : targets) {
      if (target.is_string()) words.push_back(name_in_path(target.get<std::string>()));
    }
    return words;
  }
  const std::string text = targets.is_string() ? targets.get<std::string>() : "";
  if (text.find_first_of("()[]*\\|^$") == std::string::npos) {
    for (const std::string& word : split(text)) words.push_back(name_in_path(word));
    return words;
  }
  for (const std::string& name : names_of<AdapterTarget>()) {
    if (text.find(name) != std::string::npos) words.push_back(name);
  }
  return words;
}

void put_targets(const ForeignAdapter& adapter, ImportedJob& imported) {
  if (adapter.targets->is_null()) return;
  nlohmann::json known = nlohmann::json::array();
  AdapterTargets bits;
  std::vector<std::string> unknown;
  for (const std::string& word : words_of(adapter.targets)) {
    if (word == "all" || word == "all-linear") {
      imported.put("training.finetune.targets", nlohmann::json::array({"all"}), adapter.targets_place);
      return;
    }
    const AdapterTargets named = targets_of(word);
    bits |= named;
    if (named.none()) unknown.push_back(word);
  }
  for (const std::string& name : names_of<AdapterTarget>()) {
    if ((bits & targets_of(name)).any()) known.push_back(name);
  }
  if (!unknown.empty()) {
    imported.warnings.push_back(
        fmt::format("{}: adapters of {} are not modelled", adapter.targets_place, fmt::join(unknown, ", ")));
  }
  if (!known.empty()) imported.put("training.finetune.targets", known, adapter.targets_place);
}

}  // namespace

void put_adapter(const ForeignAdapter& adapter, ImportedJob& imported) {
  const bool narrow = adapter.bits > 0 && adapter.bits < 16;
  imported.put("training.finetune.method", narrow ? "qlora" : "lora", adapter.place);
  if (adapter.rank) imported.put("training.finetune.rank", *adapter.rank, adapter.place);
  if (adapter.alpha) imported.put("training.finetune.alpha", *adapter.alpha, adapter.place);
  if (adapter.dropout && *adapter.dropout > 0.0) {
    imported.put("training.finetune.dropout", *adapter.dropout, adapter.place);
  }
  if (adapter.trains_tables) imported.put("training.finetune.embeddings", true, adapter.place);
  put_targets(adapter, imported);
  if (!narrow) return;
  constexpr int kEight = 8;
  constexpr int kFour = 4;
  imported.put("training.finetune.base", adapter.bits == kEight ? "int8" : "nf4", adapter.place);
  if (adapter.bits != kEight) {
    imported.put("training.finetune.double_quant", adapter.double_quant.value_or(false), adapter.place);
  }
  if (adapter.bits != kEight && adapter.bits != kFour) {
    imported.warnings.push_back(
        fmt::format("{}: {}-bit weights are not modelled; 4 bits are assumed", adapter.place, adapter.bits));
  }
}

void put_frozen_layers(std::optional<int> layers, const std::string& place, ImportedJob& imported) {
  imported.put("training.finetune.method", "freeze", place);
  if (layers) imported.put("training.finetune.trainable_layers", *layers, place);
}

bool names_tables(const nlohmann::json& modules) {
  if (!modules.is_array()) return false;
  return std::any_of(modules.begin(), modules.end(), [](const nlohmann::json& module) {
    return module.is_string() && (module == "embed_tokens" || module == "lm_head" || module == "wte");
  });
}

namespace {

ImportedJob read_adapter_config(const ForeignFile& file, const ImportContext& context) {
  ImportedJob imported;
  JsonReader object = JsonReader::foreign(file.values(), "", file.name());
  const auto type = object.text("peft_type");
  if (type && lower_case(*type) != "lora") {
    object.fail("peft_type", fmt::format("\"{}\" is not modelled", *type), "valid: LORA");
  }
  if (const auto name = object.text("base_model_name_or_path"); name && !context.has("model")) {
    const std::string place = object.place("base_model_name_or_path");
    if (!put_hub_model(*name, file.name(), place, context, imported)) {
      imported.warnings.push_back(
          fmt::format("{}: \"{}\" is neither in the catalogue nor a local file; {}", place, *name, hub_help(*name)));
    }
  }
  ForeignAdapter adapter;
  adapter.place = object.place("r");
  adapter.rank = object.whole("r", 1).value_or(8);
  adapter.alpha = object.amount("lora_alpha");
  adapter.dropout = object.amount("lora_dropout");
  adapter.targets_place = object.place("target_modules");
  if (const nlohmann::json* targets = object.find("target_modules")) adapter.targets = *targets;
  if (const nlohmann::json* modules = object.find("modules_to_save")) adapter.trains_tables = names_tables(*modules);
  put_adapter(adapter, imported);
  judge_keys(object, "peft", imported);
  return imported;
}

bool is_adapter_config(const ForeignFile& file) {
  return file.is_object() && file.has_any({"peft_type"});
}

}  // namespace

const JobFormat& adapter_format() {
  static constexpr JobFormat kFormat = {
      .name = "PEFT adapter_config.json", .detect = is_adapter_config, .read = read_adapter_config};
  return kFormat;
}

}  // namespace flopcast
