// Adapters, packed samples and preferences in training recipes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/recipe_reader.hpp"

namespace flopcast {

namespace {

// The longest of the rule's words that the text contains.
std::string word_inside(const std::string& text, const nlohmann::json& words) {
  std::string longest;
  for (const auto& item : words.items()) {
    if (text.find(item.key()) != std::string::npos && item.key().size() > longest.size()) longest = item.key();
  }
  return longest;
}

}  // namespace

// Adapters, or frozen layers. The rule "adapter" names these leaves:
//   method     a text whose meanings "words" lists
//   when       a leaf that enables adapters if there is no method
//   inside     the words are parts of the method's text, such as "lora_llama3_8b"
//   all, mlp   booleans that add linears to the targets
//   bits       leaves with a number of bits, or {leaf: bits} for booleans
//   usual      the program's defaults
// and rank, alpha, dropout, targets, layers, modules and double_quant, as in ForeignAdapter.
void RecipeReader::read_adapter() {
  const auto rule = recipe_.rules->find("adapter");
  if (rule == recipe_.rules->end()) return;
  const auto part = [&](const char* role) -> const nlohmann::json* {
    if (!rule->contains(role)) return nullptr;
    const std::string path = rule->at(role).get<std::string>();
    const nlohmann::json* value = leaf(path);
    if (value == nullptr) return nullptr;
    const bool read_again = role == std::string_view("method") && rule->value("inside", false);
    if (!read_again) of_adapter_.insert(path);
    return value->is_null() ? nullptr : value;
  };
  const nlohmann::json usual = rule->value("usual", nlohmann::json::object());
  const auto number = [&](const char* role) -> std::optional<double> {
    const nlohmann::json* told = part(role);
    if (told != nullptr && told->is_number()) return told->get<double>();
    return usual.contains(role) ? std::optional(usual.at(role).get<double>()) : std::nullopt;
  };
  const auto is_on = [&](const char* role) {
    const nlohmann::json* told = part(role);
    return told != nullptr && *told == true;
  };
  ForeignAdapter adapter;
  const nlohmann::json* method = part("method");
  std::string path = rule->value("method", rule->value("when", std::string()));
  std::string word = method != nullptr && method->is_string() ? lower_case(method->get<std::string>()) : "";
  const nlohmann::json& words = rule->at("words");
  if (rule->value("inside", false)) word = word_inside(word, words);
  if (word.empty() && rule->contains("when") && is_on("when")) word = "lora";
  adapter.place = place(path);
  const std::optional<double> layers = number("layers");
  if (const auto rank = number("rank")) adapter.rank = static_cast<int>(std::clamp(*rank, 1.0, 1e5));
  adapter.alpha = number("alpha");
  adapter.dropout = number("dropout");
  adapter.targets_place = rule->contains("targets") ? place(rule->at("targets").get<std::string>()) : adapter.place;
  nlohmann::json targets = usual.value("targets", nlohmann::json());
  if (const nlohmann::json* told = part("targets")) targets = *told;
  if (is_on("all")) targets = "all";
  if (is_on("mlp") && targets.is_array()) targets.push_back("mlp");
  adapter.targets = targets;
  if (const nlohmann::json* modules = part("modules")) adapter.trains_tables = names_tables(*modules);
  const nlohmann::json* twice = part("double_quant");
  if (twice != nullptr && twice->is_boolean()) adapter.double_quant = twice->get<bool>();
  if (!adapter.double_quant && usual.contains("double_quant")) adapter.double_quant = usual.at("double_quant");
  const nlohmann::json all_bits = rule->value("bits", nlohmann::json::object());
  for (const auto& item : all_bits.items()) {
    const nlohmann::json* value = leaf(item.key());
    if (value == nullptr) continue;
    of_adapter_.insert(item.key());
    if (*value == true) adapter.bits = item.value().get<int>();
    if (value->is_number_integer()) adapter.bits = value->get<int>();
  }
  if (word.empty()) return;
  const auto known = words.find(word);
  if (known == words.end()) {
    const std::vector<std::string> names = keys_in(words);
    fail(path, fmt::format("{} is not modelled", shown_value(word)), choices_help(word, names));
  }
  if (known->is_string()) {
    fail(path, fmt::format("{} requires {} (not modelled)", shown_value(word), known->get<std::string>()),
         "valid: full training, LoRA, QLoRA, frozen layers");
  }
  if (known->value("freeze", false)) {
    put_frozen_layers(layers ? std::optional(static_cast<int>(*layers)) : std::nullopt, adapter.place, out_);
    return;
  }
  if (adapter.bits == 0) adapter.bits = known->value("bits", 0);
  put_adapter(adapter, out_);
}

// Several trainers may share a loss; leaves of a trainer without a reference decide between them. The rule
// "preference":
//   loss         the leaf of the loss, or of a list of losses
//   methods      the losses of each method, or of no method for next-token prediction
//   usual        the method if only the reference is given
//   precomputed  the leaf that is true if the reference's outputs are precomputed
//   alone        leaves of a trainer without a reference, which is forecast as "alone_method"
void RecipeReader::read_preference() {
  const auto rule = recipe_.rules->find("preference");
  if (rule == recipe_.rules->end()) return;
  const auto part = [&](const std::string& path) -> const nlohmann::json* {
    const nlohmann::json* value = leaf(path);
    if (value == nullptr) return nullptr;
    of_adapter_.insert(path);
    return value->is_null() || *value == "auto" ? nullptr : value;
  };
  std::string method;
  std::string where;
  const std::string path = rule->at("loss").get<std::string>();
  if (const nlohmann::json* told = part(path)) {
    const bool several = told->is_array() && !told->empty();
    const nlohmann::json& first = several ? told->front() : *told;
    const std::string loss = lower_case(text_in(first));
    bool known = false;
    for (const auto& item : rule->at("methods").items()) {
      std::istringstream losses(item.value().get<std::string>());
      for (std::string word; losses >> word;) {
        if (word != loss) continue;
        known = true;
        method = item.key();
      }
    }
    where = place(path);
    if (!known) {
      out_.warn_of(path, where, fmt::format("{}; give --preference METHOD for a supported one", shown_value(first)));
    } else if (several && told->size() > 1) {
      out_.warn_of(path, where, fmt::format("only the first loss, {}, is forecast", loss));
    }
  }
  for (const nlohmann::json& key : rule->at("alone")) {
    const std::string alone = key.get<std::string>();
    if (part(alone) == nullptr) continue;
    method = rule->at("alone_method").get<std::string>();
    where = place(alone);
  }
  const std::string precomputed = rule->at("precomputed").get<std::string>();
  const nlohmann::json* there = part(precomputed);
  if (there != nullptr && !there->is_boolean()) {
    fail(precomputed, fmt::format("{} must be a boolean", shown_value(*there)), "expected true or false");
  }
  const bool without_pass = there != nullptr && *there == true;
  if (without_pass && method.empty() && part(path) == nullptr) {
    method = rule->at("usual").get<std::string>();
    where = place(precomputed);
    out_.notes.push_back(fmt::format("{} is absent: uses {}, the default of {}", place(path), method, recipe_.program));
  }
  if (!method.empty()) out_.put("training.preference.method", method, where);
  const bool learns = !method.empty() || context_.has("training.preference.method");
  if (without_pass && learns) out_.put("training.preference.reference", false, place(precomputed));
}

// Samples of varying length: packed into sequences if the key "packed" says so.
void RecipeReader::read_packing() {
  const auto keys = recipe_.rules->find("packing");
  if (keys == recipe_.rules->end()) return;
  const std::string path = keys->at("packed").get<std::string>();
  const nlohmann::json* packed = leaf(path);
  note_packing(packed != nullptr && *packed == true, keys->at("length").get<std::string>(), out_);
  if (packed != nullptr) of_adapter_.insert(path);
}

}  // namespace flopcast
