#include "model/job/user_spelling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {
namespace {

[[noreturn]] void refuse(const FlagValue& value, const std::string& problem, const std::string& help) {
  throw ConfigError({std::string(value.key->field), problem, value.flag, help});
}

// A list of numbers, or a word that the section's reader validates.
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
  // An object or a list may be given as JSON, as in a job file.
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

// The key that holds the name when it becomes an object: "gpt3-175b" -> {"name": "gpt3-175b"}, "lora" -> {"method":
// "lora"}.
std::string name_key(std::string_view path) {
  for (const JobKey& key : job_keys()) {
    if (key.entry->names_object && key.field == path) return std::string(key.entry->key);
  }
  return "name";
}

bool drop_end(std::string& text, std::string_view end) {
  if (text.size() <= end.size() || !text.ends_with(end)) return false;
  text.resize(text.size() - end.size());
  return true;
}

// Removes case, separators and the additions of repository owners. Dots are kept: 3.1 differs from 31.
std::string bare(const std::string& text) {
  std::string name = lower_case(text.substr(text.rfind('/') == std::string::npos ? 0 : text.rfind('/') + 1));
  for (const std::string_view start : {"meta-", "nvidia-"}) {
    if (name.starts_with(start)) name.erase(0, start.size());
  }
  constexpr std::array<std::string_view, 10> kEndings = {"-hf",   "-instruct", "-base", "-chat", "-it",
                                                         "-2507", "-v0.1",     "-v0.3", "-fp8",  "-thinking"};
  while (std::any_of(kEndings.begin(), kEndings.end(), [&name](std::string_view end) { return drop_end(name, end); })) {
  }
  std::string letters;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ') letters += c;
  }
  return letters;
}

// For devices with several variants, the one found in most clusters.
constexpr std::pair<std::string_view, std::string_view> kUsualDevices[] = {
    {"a100", "a100-80g"}, {"a10080gb", "a100-80g"}, {"a10040gb", "a100-40g"}, {"v100", "v100-32g"},
    {"h100sxm", "h100"},  {"h100sxm5", "h100"},     {"h10080gb", "h100"},     {"4090", "rtx-4090"},
    {"3090", "rtx-3090"}, {"5090", "rtx-5090"}};

// Splits off a count before an x: "256xh100".
std::pair<std::optional<int>, std::string> counted(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  constexpr std::size_t kMostDigits = 7;
  const bool is_count = digits != std::string::npos && digits > 0 && digits <= kMostDigits &&
                        (text[digits] == 'x' || text[digits] == 'X' || text[digits] == '*');
  if (!is_count) return {std::nullopt, text};
  return {std::stoi(text.substr(0, digits)), text.substr(digits + 1)};
}

// The catalogue's node for a device; vendors' nodes are preferred to clouds'.
std::string node_of(const std::string& device) {
  std::string best;
  const auto rank = [](const std::string& name) {
    return name.starts_with("dgx-") ? 0 : name.starts_with("hgx-") ? 1 : 2;
  };
  for (const std::string& name : catalogue_names(CatalogueKind::kClusters)) {
    const nlohmann::json values = catalogue_values(CatalogueKind::kClusters, name);
    if (values.value("device", nlohmann::json()) != device || values.value("devices_per_node", 0) <= 1) continue;
    if (best.empty() || rank(name) < rank(best)) best = name;
  }
  return best;
}

struct TypedCluster {
  std::string name;  ///< the catalogue's name, or the text as typed
  bool is_device = false;
};

TypedCluster cluster_or_device(const std::string& text) {
  const std::string cluster = typed_entry(CatalogueKind::kClusters, text);
  if (!catalogue_values(CatalogueKind::kClusters, cluster).is_null()) return {cluster, false};
  const std::string device = typed_entry(CatalogueKind::kDevices, text);
  if (catalogue_values(CatalogueKind::kDevices, device).is_null()) return {text, false};
  const std::string node = node_of(device);
  if (!node.empty()) return {node, true};
  throw ConfigError({"cluster", fmt::format("\"{}\" is a device that no cluster of the catalogue contains", text),
                     "--cluster",
                     fmt::format("specify its node, for example: --cluster dgx-h100 --cluster.device {}", device)});
}

nlohmann::json of_devices(int devices, const std::string& node, const std::string& flag) {
  const int per_node = catalogue_values(CatalogueKind::kClusters, node).value("devices_per_node", 1);
  if (devices < per_node) return {{"name", node}, {"nodes", 1}, {"devices_per_node", devices}};
  if (devices % per_node == 0) return fmt::format("{}x{}", devices / per_node, node);
  // Large NVLink racks are often used only in part: 256 GPUs are four times 64 of 72.
  constexpr int kLargestTray = 16;
  constexpr int kTray = 4;
  for (int part = per_node / kTray * kTray; per_node > kLargestTray && part > per_node / 2; part -= kTray) {
    if (devices % part != 0) continue;
    return {{"name", node}, {"nodes", devices / part}, {"devices_per_node", part}, {"nics_per_node", part}};
  }
  const int below = devices / per_node * per_node;
  throw ConfigError({"cluster",
                     fmt::format("{} GPUs do not fill whole nodes of {}, which have {} each", devices, node, per_node),
                     flag, fmt::format("nearest valid: {} or {}", below, below + per_node)});
}

constexpr std::pair<std::string_view, std::string_view> kTypedSchedules[] = {{"zb", "zb-h1"},
                                                                             {"zero-bubble", "zb-h1"},
                                                                             {"zerobubble", "zb-h1"},
                                                                             {"zb1p", "zb-h1"},
                                                                             {"zb-1p", "zb-h1"},
                                                                             {"zb2p", "zb-h2"},
                                                                             {"zb-2p", "zb-h2"},
                                                                             {"zbh1", "zb-h1"},
                                                                             {"zbh2", "zb-h2"},
                                                                             {"zb-v", "zbv"},
                                                                             {"zbvzerobubble", "zbv"},
                                                                             {"interleavedzerobubble", "zb-h1"},
                                                                             {"dual-pipe", "dualpipe"},
                                                                             {"dual-pipe-v", "dualpipev"},
                                                                             {"dualpipe-v", "dualpipev"},
                                                                             {"interleaved-1f1b", "interleaved"},
                                                                             {"interleaved1f1b", "interleaved"},
                                                                             {"1f1b-interleaved", "interleaved"},
                                                                             {"pipedream-flush", "1f1b"},
                                                                             {"afab", "gpipe"},
                                                                             {"2bw", "pipedream-2bw"}};

std::string typed_schedule(const std::string& text) {
  if (text.starts_with("file:")) return text;
  const std::size_t colon = std::min(text.find(':'), text.size());
  std::string name = lower_case(text.substr(0, colon));
  std::replace(name.begin(), name.end(), '_', '-');
  for (const auto& [typed, meant] : kTypedSchedules) {
    if (name == typed) name = meant;
  }
  return name + text.substr(colon);
}

constexpr std::pair<std::string_view, std::string_view> kTypedFormats[] = {
    {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"},     {"float32", "fp32"}, {"float", "fp32"},
    {"float8", "fp8"},    {"fp-8", "fp8"},     {"tfloat32", "tf32"}, {"adamw", "adam"}};

std::string typed_choice(const std::vector<std::string>& choices, const std::string& text) {
  const auto is_choice = [&choices](const std::string& word) {
    return std::find(choices.begin(), choices.end(), word) != choices.end();
  };
  if (is_choice(text)) return text;
  std::string word = lower_case(text);
  for (const auto& [typed, meant] : kTypedFormats) {
    if (word == typed && is_choice(std::string(meant))) word = meant;
  }
  if (is_choice(word)) return word;
  std::replace(word.begin(), word.end(), '-', '_');
  return is_choice(word) ? word : text;
}

// "8k" tokens means 8192, as usual for context lengths.
std::string typed_length(const std::string& text) {
  if (text.size() < 2) return text;
  const char last = static_cast<char>(std::tolower(static_cast<unsigned char>(text.back())));
  constexpr int kOfAKi = 1024;
  const int unit = last == 'k' ? kOfAKi : last == 'm' ? kOfAKi * kOfAKi : 0;
  constexpr int kMost = 1'000'000;
  const auto number = parse_digits(text.substr(0, text.size() - 1), 1, kMost);
  if (unit == 0 || !number || *number > 2'000'000'000 / unit) return text;
  return std::to_string(*number * unit);
}

// Rates of network cards are usually given in bits.
std::string typed_rate(const std::string& field, const std::string& text) {
  const bool of_card = field.ends_with("nic_bandwidth");
  const bool bare_giga = !text.empty() && (text.back() == 'G' || text.back() == 'g');
  return of_card && bare_giga ? text.substr(0, text.size() - 1) + "Gbit/s" : text;
}

}  // namespace

void set_key(std::string_view field, nlohmann::json value, nlohmann::json& root) {
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
    set_key(row.at("key").get<std::string>(), row.at("value"), job);
  }
  return job;
}

void apply_flags(const std::vector<FlagValue>& flags, nlohmann::json& root, Origins& origins) {
  // Names of whole objects come first, so that --model.layers refines --model regardless of their order on the command
  // line.
  const auto depth = [](const FlagValue& value) {
    return std::count(value.key->field.begin(), value.key->field.end(), '.');
  };
  std::vector<FlagValue> sorted = flags;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const FlagValue& a, const FlagValue& b) { return depth(a) < depth(b); });
  for (const FlagValue& value : sorted) {
    origins.flags[value.key->field] = value.flag;
    set_key(value.key->field, typed(value), root);
  }
}

std::string typed_entry(CatalogueKind kind, const std::string& text) {
  const std::vector<std::string> names = catalogue_names(kind);
  const std::size_t release = kind == CatalogueKind::kStacks ? std::min(text.find('@'), text.size()) : text.size();
  const std::string asked = text.substr(0, release);
  if (std::find(names.begin(), names.end(), asked) != names.end()) return text;
  const std::string wanted = bare(asked);
  if (kind == CatalogueKind::kDevices) {
    for (const auto& [typed, meant] : kUsualDevices) {
      if (wanted == typed) return std::string(meant);
    }
  }
  for (const std::string& name : names) {
    if (bare(name) == wanted) return name + text.substr(release);
  }
  return text;
}

std::string typed_schedules(const std::string& text) {
  std::string all;
  for (const std::string& one : split(text)) all += (all.empty() ? "" : ",") + typed_schedule(one);
  return all;
}

nlohmann::json typed_cluster(const std::string& text) {
  const auto [count, name] = counted(text);
  const TypedCluster cluster = cluster_or_device(name);
  if (!count) return cluster.name;
  if (cluster.is_device && *count > 0) return of_devices(*count, cluster.name, "--cluster");
  return fmt::format("{}x{}", *count, cluster.name);
}

nlohmann::json typed_cluster(int devices, const std::string& text) {
  const auto [count, name] = counted(text);
  if (count) {
    throw ConfigError({"--gpus",
                       fmt::format("{} conflicts with --cluster {}, which already has a count", devices, text),
                       "--gpus", fmt::format("use --cluster {} --gpus {}, or only --cluster {}", name, devices, text)});
  }
  const std::string cluster = cluster_or_device(name).name;
  if (catalogue_values(CatalogueKind::kClusters, cluster).is_null())
    return text;  // the cluster's reader reports the unknown name
  return of_devices(devices, cluster, "--gpus");
}

namespace {

// Detects "4M": papers often state the batch in tokens.
void refuse_tokens(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const bool counts = digits != std::string::npos && digits > 0 && digits + 1 == text.size() && digits < 7 &&
                      std::string_view("kKmM").find(text.back()) != std::string_view::npos;
  if (!counts) return;
  const std::int64_t unit = text.back() == 'k' || text.back() == 'K' ? 1 << 10 : 1 << 20;
  constexpr std::int64_t kUsualLength = 4096;
  const std::int64_t sequences = std::stoll(text) * unit / kUsualLength;
  throw ConfigError({"layout.global_batch_size", fmt::format("\"{}\" looks like a number of tokens", text), "--gbs",
                     fmt::format("give the number of sequences: tokens / sequence length, here {} of {} tokens",
                                 std::max<std::int64_t>(1, sequences), kUsualLength)});
}

}  // namespace

std::string typed_text(const JobKey& key, const std::string& text) {
  const std::string field(key.field);
  if (text.empty() || text.front() == '{' || text.front() == '[') return text;
  if (field == "layout.schedule") return typed_schedules(text);
  const bool is_path = text.ends_with(".json") || text.front() == '.' || text.front() == '/';
  if (field == "model") return is_path ? text : typed_entry(CatalogueKind::kModels, text);
  if (field == "cluster.network" && !is_path) return typed_entry(CatalogueKind::kNetworks, text);
  if (field == "cluster.device") return typed_entry(CatalogueKind::kDevices, text);
  if (field == "failures" && !is_path) return typed_entry(CatalogueKind::kFailures, text);
  if (field == "training.stack" && !is_path) return typed_entry(CatalogueKind::kStacks, text);
  if (field.ends_with("sequence_length")) return typed_length(text);
  if (field == "layout.global_batch_size") refuse_tokens(text);
  if (field.ends_with("price_per_gpu_hour") && text.front() == '$') return text.substr(1);
  if (key.kind == FieldKind::kChoice && key.entry->choices != nullptr) return typed_choice(key.entry->choices(), text);
  if (key.kind == FieldKind::kQuantity) return typed_rate(field, text);
  return text;
}

}  // namespace flopcast
