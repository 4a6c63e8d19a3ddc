#include "calibrate/validation/published_row.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <string_view>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

constexpr int kStagesOfSingleLayer = 3;

MappedRow skipped(const std::string& reason) {
  MappedRow mapped;
  mapped.skip_reason = reason;
  return mapped;
}

// Fields that a forecast needs but the row lacks.
std::vector<std::string> absent_fields(const PublishedRow& row) {
  std::vector<std::string> absent = row.missing;
  const auto need = [&absent](bool present, const char* name) {
    if (!present) absent.emplace_back(name);
  };
  need(!row.gpu.empty(), "gpu");
  need(row.layers.has_value(), "layers");
  need(row.hidden.has_value(), "hidden");
  need(row.heads.has_value(), "heads");
  need(row.sequence_length.has_value(), "sequence length");
  need(row.micro_batch_size.has_value(), "micro batch");
  need(row.global_batch_size.has_value(), "global batch");
  return absent;
}

nlohmann::json model_of(const PublishedRow& row, const std::string& words) {
  const int hidden = *row.hidden;
  const std::int64_t ffn = row.ffn.value_or(kMlpWidthOfGpt * hidden);
  const bool gpt = is_gpt(row);
  nlohmann::json model = {{"layers", *row.layers},
                          {"hidden", hidden},
                          {"heads", *row.heads},
                          {"kv_heads", row.kv_heads.value_or(*row.heads)},
                          {"ffn", ffn},
                          {"vocab", *row.vocab},
                          {"sequence_length", *row.sequence_length},
                          {"tied_embeddings", gpt && !mentions(words, "untied")}};
  if (hidden % *row.heads != 0) model["head_dim"] = hidden / *row.heads;
  if (!gpt) model.update({{"gated_mlp", true}, {"norm", "rmsnorm"}, {"positions", "rotary"}, {"biases", false}});
  // Composer's MPT has no dropout; Megatron's GPT does.
  if (mentions(words, "fsdp")) model["dropout"] = false;
  return model;
}

// Names of a schedule in publications, and flopcast's. ZB-1p of 2401.10241 has the idle share of ZB-H1 in every row of
// its Table 5; ZB-2p has less than ZB-H2, so it is searched for.
struct ScheduleRule {
  std::string_view phrase;
  const char* name;
  int held_microbatches;  ///< limit on activations if the schedule is searched, in pipeline ranks; 0: none
};
constexpr std::array<ScheduleRule, 15> kScheduleRules = {{
    {"zb-1p", "zb-h1", 0},
    {"zb-2p", "zb-auto", 2},
    {"zb-h1", "zb-h1", 0},
    {"zb-h2", "zb-h2", 0},
    {"zb-v", "zbv:greedy", 0},
    {"interleaved", "interleaved", 0},
    {"dualpipev", "dualpipev", 0},
    {"dualpipe", "dualpipe", 0},
    {"gpipe", "gpipe", 0},
    {"flush", "1f1b", 0},
    {"pipedream-2bw", "pipedream-2bw", 0},
    {"pipedream", "pipedream", 0},
    {"naive", "naive", 0},
    {"1f1b", "1f1b", 0},
    {"one-forward-one-backward", "1f1b", 0},
}};

// Text that only describes the replicas leaves the layout's default.
bool names_no_pipeline(const std::string& schedule) {
  return schedule.empty() || schedule.rfind("none", 0) == 0 || schedule.rfind("fsdp", 0) == 0;
}

std::optional<ScheduleName> catalogue_schedule(const std::string& schedule) {
  if (find_schedule(schedule.substr(0, schedule.find(':'))) == nullptr) return std::nullopt;
  try {
    return parse_schedule_name(schedule);
  } catch (const ConfigError&) {
    return std::nullopt;  // a variant that the schedule does not have
  }
}

// Sets the schedule; returns false if it is unknown.
bool set_schedule(const std::string& schedule, nlohmann::json& layout) {
  const int pp = layout.value("pp", 1);
  if (pp == 1 || names_no_pipeline(schedule)) return true;
  std::optional<ScheduleName> name = catalogue_schedule(schedule);
  std::string written = schedule;
  if (!name) {
    const auto rule = std::find_if(kScheduleRules.begin(), kScheduleRules.end(), [&schedule](const ScheduleRule& of) {
      return schedule.find(of.phrase) != std::string::npos;
    });
    if (rule == kScheduleRules.end()) return false;
    written = rule->name;
    name = parse_schedule_name(written);
    if (rule->held_microbatches > 0) layout["memory_limit"] = rule->held_microbatches * pp;
  }
  if (name->chunks) layout["vpp"] = *name->chunks;
  const bool one_chunk = name->info->name == "interleaved" && layout.value("vpp", 1) == 1;
  layout["schedule"] = one_chunk ? "1f1b" : written;
  if (name->info->default_chunks > 1 && !one_chunk && !layout.contains("vpp")) {
    layout["vpp"] = name->info->default_chunks;
  }
  return true;
}

void set_stage_layers(const PublishedRow& row, const std::string& words, nlohmann::json& layout) {
  const int stages = layout.value("pp", 1) * layout.value("vpp", 1);
  const int layers = *row.layers;
  constexpr int kTables = 2;  // embedding and head, counted as layers
  const bool said = mentions(words, "balanced as a layer") || mentions(words, "one layer fewer");
  if (stages < kTables || (layers + kTables) % stages != 0 || (!said && layers % stages == 0)) return;
  const int each = (layers + kTables) / stages;
  std::vector<int> of_stages(static_cast<std::size_t>(stages), each);
  of_stages.front() -= 1;
  of_stages.back() -= 1;
  layout["stage_layers"] = of_stages;
}

nlohmann::json mapped_layout(const PublishedRow& row) {
  nlohmann::json layout = {{"tp", row.tp.value_or(1)},
                           {"pp", row.pp.value_or(1)},
                           {"cp", row.cp.value_or(1)},
                           {"ep", std::max(1, row.ep.value_or(1))},
                           {"micro_batch_size", *row.micro_batch_size},
                           {"global_batch_size", *row.global_batch_size},
                           {"sequence_parallel", row.sequence_parallel.value_or(false) && row.tp.value_or(1) > 1}};
  if (row.dp) {
    layout["dp"] = *row.dp;
    // The source rounded the batch: use whole microbatches on every replica.
    const double slice = static_cast<double>(*row.dp) * *row.micro_batch_size;
    layout["global_batch_size"] = static_cast<int>(std::max(1.0, std::round(*row.global_batch_size / slice)) * slice);
  }
  if (row.vpp.value_or(1) > 1) layout["vpp"] = *row.vpp;
  const std::string recompute = row.recompute.value_or("none");
  layout["recompute"] = recompute.rfind("selective", 0) == 0 ? "selective" : recompute;
  const int zero = row.zero.value_or(0);
  if (row.schedule.rfind("fsdp", 0) == 0 && zero >= 2) {
    layout["data_parallel"] = "fsdp";
    layout["reshard_after_forward"] = zero == 3;
  } else if (zero > 0) {
    // Pipelines sum gradients over all microbatches before they scatter them, whatever ZeRO stage the source names.
    constexpr int kGradients = 2;
    const bool summed = row.pp.value_or(1) > 1 && !row.scatters_each_microbatch.value_or(false);
    layout["zero"] = zero == kGradients && summed ? kGradients - 1 : zero;
  }
  return layout;
}

int devices_of(const PublishedRow& row) {
  const int product = row.dp.value_or(1) * row.tp.value_or(1) * row.pp.value_or(1) * row.cp.value_or(1);
  return row.dp ? product : row.devices.value_or(product);
}

void make_single_layer(MappedRow& mapped) {
  mapped.part = MeasuredPart::kLayer;
  nlohmann::json& job = mapped.job;
  job["model"]["layers"] = kStagesOfSingleLayer;
  job["layout"]["pp"] = kStagesOfSingleLayer;
  job["layout"]["schedule"] = "1f1b";
}

MappedRow map_collective(const PublishedRow& row, const std::string& device) {
  MappedRow mapped;
  mapped.part = MeasuredPart::kCollective;
  if (!row.devices) return skipped("number of devices is not stated");
  mapped.job["cluster"] = cluster_of(row, device, *row.devices);
  return mapped;
}

// A name replaces the name of an existing object; an object extends an existing name.
void complete_with(const nlohmann::json& more, nlohmann::json& job) {
  for (const auto& item : more.items()) {
    nlohmann::json& place = job[item.key()];
    if (place.is_string() && item.value().is_object()) place = {{"name", place}};
    if (place.is_object() && item.value().is_string()) {
      place["name"] = item.value();
    } else if (place.is_object() && item.value().is_object()) {
      complete_with(item.value(), place);
    } else {
      place = item.value();
    }
  }
}

// True if `job` has all of `values`, so that merging them changes nothing.
bool has_values(const nlohmann::json& job, const nlohmann::json& values) {
  nlohmann::json patched = job;
  patched.merge_patch(values);
  return patched == job;
}

// True if the row contains the completion's phrases ("says") and, if these are given, the job has the values "of" and
// "stages" pipeline chunks in total.
bool is_for(const nlohmann::json& completion, const std::string& words, const nlohmann::json& job) {
  const auto says = [&words](const nlohmann::json& phrase) { return mentions(words, phrase.get<std::string>()); };
  if (!std::all_of(completion.at("says").begin(), completion.at("says").end(), says)) return false;
  if (completion.contains("of") && !has_values(job, completion["of"])) return false;
  if (!completion.contains("stages")) return true;
  const nlohmann::json layout = job.value("layout", nlohmann::json::object());
  return layout.value("pp", 1) * layout.value("vpp", 1) == completion["stages"].get<int>();
}

nlohmann::json completed_job(const PublishedRow& row, const std::string& about) {
  static const nlohmann::json completions = nlohmann::json::parse(embedded_completions().front().text);
  nlohmann::json job = row.job;
  if (row.software->is_object()) complete_with({{"training", row.software}}, job);
  const std::string words = lower_case(row.id + "; ") + words_of(row, about);
  for (const nlohmann::json& completion : completions) {
    if (is_for(completion, words, job)) complete_with(completion.at("job"), job);
  }
  return job;
}

}  // namespace

MappedRow map_row(const PublishedRow& row, const std::string& about) {
  if (!row.job->is_null()) {
    MappedRow mapped;
    mapped.job = completed_job(row, about);
    mapped.memory_reserved = mentions(words_of(row, about), "reserved") || mentions(words_of(row, about), "as printed");
    return mapped;
  }
  if (row.gpu.empty()) return skipped("not stated: gpu");
  const auto device = device_of(row);
  if (row.collective && device) return map_collective(row, *device);
  if (!row.complete || !row.layers || !row.heads || !row.micro_batch_size || !row.global_batch_size ||
      !row.sequence_length || !row.hidden) {
    const std::vector<std::string> absent = absent_fields(row);
    return skipped(absent.empty() ? "the source marks it as incomplete"
                                  : fmt::format("not stated: {}", fmt::join(absent, ", ")));
  }
  if (!device) return skipped(fmt::format("the catalogue has no device \"{}\"", row.gpu));
  const std::string words = words_of(row, about);
  MappedRow mapped;
  nlohmann::json layout = mapped_layout(row);
  if (!row.layer_s && !set_schedule(row.schedule, layout))
    return skipped(fmt::format("unknown schedule \"{}\"", row.schedule));
  set_stage_layers(row, words, layout);
  mapped.steps_overlap = runs_zero_bubble(row);
  mapped.memory_as_tools_show = mentions(words, "nvidia-smi");
  *mapped.job = {
      {"model", model_of(row, words)},
      {"layout", layout},
      {"training",
       {{"sequence_length", *row.sequence_length}, {"precision", precision_of(row)}, {"stack", stack_of(row, about)}}}};
  if (row.layer_s) make_single_layer(mapped);
  const int devices = devices_of(row) * (row.layer_s ? kStagesOfSingleLayer : 1);
  mapped.job["cluster"] = cluster_of(row, *device, devices);
  return mapped;
}

namespace {

struct DeviceRule {
  std::array<std::string_view, 2> words;  ///< all of them must occur
  const char* device;
  const char* cluster;  ///< cluster whose links a node has, if the row does not state them
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

// Network cards by the fabric names in publications; rates per card are used if the row has none.
struct FabricRule {
  std::string_view word;
  double gigabits;    ///< per card; 0: the generation's
  double efficiency;  ///< fraction that NCCL reaches; 0: the base cluster's
};
constexpr std::array<FabricRule, 3> kFabricRules = {{
    // One rank per Omni-Path card, whose driver copies through the host: the data-parallel rings of Jean Zay reach less
    // than half of its rate (fitted to the published BLOOM steps).
    {"omni-path", 100.0, 0.45},
    // RoCE of A100 nodes with an unpublished rate: 100 Gbit/s cards are the most common.
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
  bool cuts_model;  ///< has tensor and pipeline parallelism; if not, a run with either uses another stack
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

// The year from the number of a preprint, arXiv:YYMM.NNNNN.
std::optional<double> year_of(const std::string& citation) {
  return number_in(citation, R"(arxiv:\s*(\d\d)\d\d\.)", 1);
}

std::string stack_name(const PublishedRow& row, const std::string& about, const std::string& device) {
  if (runs_zero_bubble(row)) return "zero-bubble";
  // Statements of the row take precedence over those about its whole file.
  const bool cut = row.tp.value_or(1) * row.pp.value_or(1) > 1;
  for (const bool of_row : {true, false}) {
    const std::string words = of_row ? words_of(row, "") : lower_case(about);
    for (const StackRule& rule : kStackRules) {
      if (mentions(words, rule.phrase) && (rule.cuts_model || !cut)) return rule.stack;
    }
    if (row.in_zero_bubble_publication && !is_recent(device)) return "zero-bubble";
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
  // Only zero-bubble schedules use the runtime that sends ahead; others use Megatron's.
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
