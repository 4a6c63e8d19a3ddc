#include "calibrate/validation/published_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <string_view>

#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"

namespace flopcast {

namespace {

struct DeviceRule {
  std::array<std::string_view, 2> words;  ///< all of them must appear
  const char* device;
  const char* cluster;  ///< whose links a node of it has, where the row does not say
};
constexpr std::array<DeviceRule, 15> kDeviceRules = {{
    {{"a100", "pcie"}, "a100-80g-pcie", "dgx-a100-80g"},
    {{"a100", "40gb"}, "a100-40g", "dgx-a100-40g"},
    {{"a100", ""}, "a100-80g", "dgx-a100-80g"},
    {{"ampere", ""}, "a100-80g", "dgx-a100-80g"},
    {{"v100-sxm3", ""}, "v100-sxm3-32g", "dgx-2h"},
    {{"v100", "16gb"}, "v100-16g", "dgx-v100"},
    {{"v100", ""}, "v100-32g", "dgx-v100"},
    {{"h100", "pcie"}, "h100-pcie", "dgx-h100"},
    {{"gh200", ""}, "gh200", "dgx-h200"},
    {{"h100", ""}, "h100", "dgx-h100"},
    {{"h200", ""}, "h200", "dgx-h200"},
    {{"gb200", ""}, "", ""},
    {{"b200", ""}, "b200", "dgx-b200"},
    {{"mi300x", ""}, "mi300x", ""},
    {{"l40s", ""}, "l40s", ""},
}};

const DeviceRule* device_rule(const std::string& gpu) {
  const std::string words = lower_case(gpu);
  const auto fits = [&words](const DeviceRule& rule) {
    return std::all_of(rule.words.begin(), rule.words.end(),
                       [&words](std::string_view word) { return words.find(word) != std::string::npos; });
  };
  const auto* rule = std::find_if(kDeviceRules.begin(), kDeviceRules.end(), fits);
  return rule == kDeviceRules.end() || *rule->device == '\0' ? nullptr : rule;
}

// Network cards as the kinds of fabric that published clusters use them; rates per card where the row has none.
struct FabricRule {
  std::string_view word;
  double gigabits;    ///< of a card; 0: the generation's
  double efficiency;  ///< share that NCCL reaches; 0: the base cluster's
};
constexpr std::array<FabricRule, 3> kFabricRules = {{
    // One rank a card of Omni-Path, whose driver copies through the host: the data-parallel rings of Jean Zay reach
    // less than half of it (fitted to the published BLOOM steps).
    {"omni-path", 100.0, 0.45},
    // RoCE of A100 nodes whose rate nobody states: 100 Gbit/s cards are the usual ones.
    {"rate not stated", 100.0, 0.7},
    {"efa", 100.0, 0.7},
}};

constexpr double kGigabytesPerNvlink3 = 25.0;
constexpr double kGigabitsOfHdr = 200.0;
constexpr double kGigabitsOfNdr = 400.0;

std::optional<double> number_in(const std::string& words, const char* pattern, std::size_t group) {
  std::smatch match;
  if (!std::regex_search(words, match, std::regex(pattern))) return std::nullopt;
  return std::strtod(match[group].str().c_str(), nullptr);
}

bool is_recent(const std::string& device) {
  const std::string generation = catalogue_values(CatalogueKind::kDevices, device).value("generation", "");
  return generation == "hopper" || generation == "blackwell" || generation == "ada";
}

void set_cards(nlohmann::json& cluster, double cards, double gigabits) {
  cluster["nics_per_node"] = std::max(1, static_cast<int>(cards));
  cluster["nic_bandwidth"] = fmt::format("{}Gbit/s", gigabits);
}

void set_network(const PublishedRow& row, const std::string& device, int devices_per_node, nlohmann::json& cluster) {
  const std::string words = lower_case(row.inter_node);
  double card = is_recent(device) ? kGigabitsOfNdr : kGigabitsOfHdr;
  bool known = false;
  for (const FabricRule& rule : kFabricRules) {
    if (words.find(rule.word) == std::string::npos) continue;
    if (rule.gigabits > 0.0) card = rule.gigabits;
    if (rule.efficiency > 0.0) cluster["nic_efficiency"] = rule.efficiency;
    known = true;
    break;
  }
  const auto each = number_in(words, R"((\d+)\s*x\s*\D*?(\d+)\s*gb?(it)?/?s)", 2);
  const auto count = number_in(words, R"((\d+)\s*x)", 1);
  const auto of_node = number_in(words, R"((\d+)\s*gb/s\D*per node)", 1);
  const auto of_device = number_in(words, R"((\d+)\s*gb/s\D*per gpu)", 1);
  if (each && count) {
    set_cards(cluster, *count, *each);
  } else if (of_device) {
    set_cards(cluster, devices_per_node, *of_device);
  } else if (of_node) {
    set_cards(cluster, *of_node / std::min(card, *of_node), std::min(card, *of_node));
  } else if (count) {
    set_cards(cluster, *count, card);
  } else if (known) {
    set_cards(cluster, devices_per_node, card);
  }
}

struct StackRule {
  std::string_view phrase;
  const char* stack;
  bool cuts_model;  ///< has tensor and pipeline parallelism; a run with either is of another one if not
};
constexpr std::array<StackRule, 8> kStackRules = {{
    {"transformerengine", "megatron-core", true},
    {"transformer engine", "megatron-core", true},
    {"megatron-core", "megatron-core", true},
    {"megatron-bridge", "nemo", true},
    {"nemo", "nemo", true},
    {"deepspeed", "megatron-deepspeed", true},
    {"fsdp", "pytorch-fsdp@2023-01", false},
    {"pytorch", "pytorch-fsdp@2023-01", false},
}};

// The year of a preprint's number, arXiv:YYMM.NNNNN.
std::optional<double> year_of(const std::string& citation) {
  return number_in(citation, R"(arxiv:\s*(\d\d)\d\d\.)", 1);
}

std::string stack_name(const PublishedRow& row, const std::string& about, const std::string& device) {
  if (runs_zero_bubble(row)) return "zero-bubble";
  // What the row itself says comes before what its file says of all of them.
  const bool cut = row.tp.value_or(1) * row.pp.value_or(1) > 1;
  for (const bool of_row : {true, false}) {
    const std::string words = of_row ? words_of(row, "") : lower_case(about);
    for (const StackRule& rule : kStackRules) {
      if (mentions(words, rule.phrase) && (rule.cuts_model || !cut)) return rule.stack;
    }
    if (row.beside_zero_bubble && !is_recent(device)) return "zero-bubble";
  }
  if (is_recent(device)) return "megatron-core";
  constexpr double kSince = 22;
  const bool selective = row.recompute && row.recompute->rfind("selective", 0) == 0;
  const bool dated = year_of(lower_case(row.citation)).value_or(0.0) >= kSince;
  return row.sequence_parallel.value_or(false) || selective || dated ? "megatron-2022" : "megatron-2021";
}

void set_properties(const std::string& words, nlohmann::json& stack) {
  if (mentions(words, "gradients accumulated in fp16")) stack["gradient_bytes"] = 2;
  if (mentions(words, "fp32 gradient accumulation") || mentions(words, "fp32 main-grad accumulation")) {
    stack["gradient_bytes"] = 4;
  }
  if (mentions(words, "fused cross-entropy")) stack["loss_saved_bytes"] = 2;
  if (mentions(words, "mode pure")) stack["gradient_bytes"] = 2;
  if (mentions(words, "flashattention") || mentions(words, "flash attention")) stack["attention"] = "flash";
  if (mentions(words, "no communication overlap of any kind")) {
    for (const char* overlap : {"overlap_gradient_reduction", "overlap_tp_with_weight_gradient"})
      stack[overlap] = false;
    stack["blocking_sends"] = true;
  }
}

}  // namespace

std::string words_of(const PublishedRow& row, const std::string& about) {
  return lower_case(row.schedule + "; " + row.recompute.value_or("") + "; " + row.precision + "; " +
                    row.flops_convention + "; " + row.note + "; " + row.citation + "; " + about);
}

bool mentions(const std::string& words, std::string_view phrase) {
  return words.find(phrase) != std::string::npos;
}

std::optional<std::string> device_of(const PublishedRow& row) {
  const DeviceRule* rule = device_rule(row.gpu);
  if (rule == nullptr) return std::nullopt;
  return rule->device;
}

nlohmann::json cluster_of(const PublishedRow& row, const std::string& device, int devices) {
  const DeviceRule* rule = device_rule(row.gpu);
  const bool has_base = rule != nullptr && *rule->cluster != '\0';
  nlohmann::json cluster = catalogue_values(CatalogueKind::kClusters, has_base ? rule->cluster : "dgx-a100-80g");
  const int per_node = std::min(devices, row.devices_per_node.value_or(8));
  cluster["name"] = "as published";
  cluster.erase("description");
  cluster["device"] = device;
  cluster["devices_per_node"] = per_node;
  cluster["nodes"] = (devices + per_node - 1) / per_node;
  if (const auto links = number_in(lower_case(row.intra_node), R"(\((\d+) links)", 1)) {
    cluster["intra_bandwidth"] = fmt::format("{}GB/s", *links * kGigabytesPerNvlink3);
  }
  set_network(row, device, row.devices_per_node.value_or(8), cluster);
  return cluster;
}

nlohmann::json stack_of(const PublishedRow& row, const std::string& about) {
  nlohmann::json stack = {{"name", stack_name(row, about, device_of(row).value_or(""))}};
  set_properties(words_of(row, about), stack);
  // The runtime that sends ahead is the one of zero-bubble schedules; others run Megatron's.
  if (stack["name"] == "zero-bubble" && !runs_zero_bubble(row)) stack["blocking_sends"] = true;
  return stack;
}

std::string precision_of(const PublishedRow& row) {
  const std::string said = lower_case(row.precision.empty() ? row.note : row.precision);
  struct Rule {
    std::string_view word;
    const char* precision;
  };
  constexpr std::array<Rule, 3> kRules = {{{"fp8", "fp8"}, {"bf16", "bf16"}, {"fp16", "fp16"}}};
  for (const Rule& rule : kRules) {
    if (mentions(said, rule.word)) return rule.precision;
  }
  return mentions(lower_case(row.gpu), "v100") ? "fp16" : "bf16";
}

}  // namespace flopcast
