#include "calibrate/validation/published_row.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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

// What a forecast cannot do without.
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
  // Composer's MPT leaves dropout out; Megatron's GPT has it.
  if (mentions(words, "fsdp")) model["dropout"] = false;
  return model;
}

// Names of a schedule in publications, and ours. What 2401.10241 calls ZB-1p has the idle share of ZB-H1 in every row
// of its Table 5; ZB-2p has less than ZB-H2: it is searched for.
struct ScheduleRule {
  std::string_view phrase;
  const char* name;
  int held_microbatches;  ///< limit on activations where the schedule is searched, in pipeline ranks; 0: none
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

// Words about the replicas alone leave the default of the layout.
bool names_no_pipeline(const std::string& schedule) {
  return schedule.empty() || schedule.rfind("none", 0) == 0 || schedule.rfind("fsdp", 0) == 0;
}

std::optional<ScheduleName> of_ours(const std::string& schedule) {
  if (find_schedule(schedule.substr(0, schedule.find(':'))) == nullptr) return std::nullopt;
  try {
    return parse_schedule_name(schedule);
  } catch (const ConfigError&) {
    return std::nullopt;  // a variant that it does not have
  }
}

// Whether the schedule is known.
bool set_schedule(const std::string& schedule, nlohmann::json& layout) {
  const int pp = layout.value("pp", 1);
  if (pp == 1 || names_no_pipeline(schedule)) return true;
  std::optional<ScheduleName> name = of_ours(schedule);
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
    // A batch that the source rounded: whole microbatches on every replica.
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
    // Pipelines sum gradients over all microbatches before they scatter them, whatever stage the source calls that.
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

}  // namespace

namespace {

// A name where an object stands already replaces the object's.
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

// Whether `job` has each value of `values`.
bool has_values(const nlohmann::json& job, const nlohmann::json& values) {
  if (!values.is_object()) return job == values;
  if (!job.is_object()) return false;
  for (const auto& item : values.items()) {
    if (!job.contains(item.key()) || !has_values(job[item.key()], item.value())) return false;
  }
  return true;
}

// A completion is for rows that say its words, and, where it tells, for jobs of these values ("of") and of so many
// pieces of a pipeline ("stages").
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
  if (!device) return skipped(fmt::format("no device in the catalogue is \"{}\"", row.gpu));
  const std::string words = words_of(row, about);
  MappedRow mapped;
  nlohmann::json layout = mapped_layout(row);
  if (!row.layer_s && !set_schedule(row.schedule, layout))
    return skipped(fmt::format("no schedule is known as \"{}\"", row.schedule));
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

}  // namespace flopcast
