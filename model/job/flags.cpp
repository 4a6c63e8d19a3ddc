#include "model/job/flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/numbers.hpp"
#include "base/text/words.hpp"
#include "model/job/typed_words.hpp"

namespace flopcast {

namespace {

[[noreturn]] void refuse(const FlagValue& value, const std::string& problem, const std::string& help) {
  throw ConfigError({std::string(value.key->field), problem, value.flag, help});
}

// A list, or a word, which the reader of the section judges.
nlohmann::json list_of(const FlagValue& value) {
  const bool is_word = !value.text.empty() && value.text.front() >= 'a' && value.text.front() <= 'z';
  if (is_word) return value.text;
  nlohmann::json numbers = nlohmann::json::array();
  for (const std::string& part : split(value.text)) {
    const auto number = parse_whole(part);
    if (!number) refuse(value, fmt::format("\"{}\" is not a list of whole numbers", value.text), "expected N,N,…");
    numbers.push_back(*number);
  }
  return numbers;
}

nlohmann::json typed(const FlagValue& given) {
  const FlagValue value = {given.key, given.flag, typed_text(*given.key, given.text)};
  // An object or a list as a job file has it.
  const bool may_nest = value.key->kind == FieldKind::kObject || value.key->kind == FieldKind::kList ||
                        value.key->entry->names_object ||
                        (value.key->kind == FieldKind::kWhole && value.key->entry->parts != nullptr);
  if (may_nest && value.text.find_first_of("{[") == 0) return parse_json(value.text, value.flag);
  if (value.key->field == "cluster") return typed_cluster(value.text);
  switch (value.key->kind) {
    case FieldKind::kText:
    case FieldKind::kChoice:
    case FieldKind::kQuantity:
    case FieldKind::kObject:
    case FieldKind::kList:
      return value.text;
    case FieldKind::kBoolean:
      if (value.text == "true" || value.text == "false") return value.text == "true";
      refuse(value, fmt::format("\"{}\" is neither true nor false", value.text), "valid: true, false");
    case FieldKind::kNumber: {
      const auto number = parse_number(value.text);
      if (!number) refuse(value, fmt::format("\"{}\" is not a number", value.text), "");
      return *number;
    }
    case FieldKind::kWholeList:
      return list_of(value);
    case FieldKind::kWhole:
      break;
  }
  const auto number = parse_whole(value.text);
  if (!number) refuse(value, fmt::format("\"{}\" is not a whole number", value.text), "");
  return *number;
}

// The key under which a name becomes an object: "gpt3-175b" -> {"name": "gpt3-175b"}, "lora" -> {"method": "lora"}.
std::string name_key(std::string_view path) {
  for (const JobKey& key : job_keys()) {
    if (key.entry->names_object && key.field == path) return std::string(key.entry->key);
  }
  return "name";
}

}  // namespace

void lay_over(std::string_view field, nlohmann::json value, nlohmann::json& root) {
  nlohmann::json* object = &root;
  const std::string_view path = field;
  for (std::size_t dot = field.find('.'); dot != std::string_view::npos; dot = field.find('.')) {
    object = &(*object)[std::string(field.substr(0, dot))];
    if (object->is_string()) {
      const std::string_view named = path.substr(0, path.size() - field.size() + dot);
      *object = {{name_key(named), *object}};
    }
    if (!object->is_null() && !object->is_object()) return;  // the reader reports the object itself
    field.remove_prefix(dot + 1);
  }
  (*object)[std::string(field)] = std::move(value);
}

bool lists_keys(const nlohmann::json& document) {
  if (!document.is_array() || document.empty()) return false;
  const nlohmann::json& first = document.front();
  return first.is_object() && first.contains("key") && first.contains("value") && first.contains("origin");
}

nlohmann::json job_of_keys(const nlohmann::json& document) {
  nlohmann::json job = nlohmann::json::object();
  for (const nlohmann::json& row : document) {
    const bool told = row.is_object() && row.contains("key") && row.at("key").is_string() && row.contains("value");
    if (!told || row.at("value").is_null()) continue;
    lay_over(row.at("key").get<std::string>(), row.at("value"), job);
  }
  return job;
}

void apply_flags(const std::vector<FlagValue>& flags, nlohmann::json& root, Origins& origins) {
  // Whole names first, so that --model.layers refines --model whatever their order on the command line.
  const auto depth = [](const FlagValue& value) {
    return std::count(value.key->field.begin(), value.key->field.end(), '.');
  };
  std::vector<FlagValue> sorted = flags;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const FlagValue& a, const FlagValue& b) { return depth(a) < depth(b); });
  for (const FlagValue& value : sorted) {
    origins.flags[value.key->field] = value.flag;
    lay_over(value.key->field, typed(value), root);
  }
}

}  // namespace flopcast
