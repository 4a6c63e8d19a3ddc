#include "cli/options/show_config.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "model/catalog/catalogue.hpp"
#include "model/config/job_keys.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("name")) return shown(value.at("name"));
  constexpr std::size_t kLongest = 60;
  const std::string text = value.dump();
  return text.size() > kLongest ? text.substr(0, kLongest) + "…" : text;
}

const char* yes_no(bool value) {
  return value ? "true" : "false";
}

// What the program chose where nobody said anything. A key that is missing here has no default.
std::map<std::string_view, std::string> defaults_of(const Job& job) {
  const Layout& layout = job.layout;
  const Training& training = job.training;
  std::map<std::string_view, std::string> values;
  const auto number = [&values](std::string_view field, int value) { values[field] = fmt::format("{}", value); };
  if (!job.profile) {
    number("model.kv_heads", job.model.kv_heads);
    number("model.head_dim", job.model.head_dim);
    number("model.ffn", job.model.ffn);
    values["model.gated_mlp"] = yes_no(job.model.gated_mlp);
    values["model.biases"] = yes_no(job.model.biases);
    values["model.dropout"] = yes_no(job.model.dropout);
    values["model.norm"] = norm_names()[static_cast<std::size_t>(job.model.norm)];
    values["model.positions"] = position_names()[static_cast<std::size_t>(job.model.positions)];
    values["model.tied_embeddings"] = yes_no(job.model.tied_embeddings);
  }
  number("model.layers", job.model.layers);
  number("cluster.nodes", job.cluster.nodes);
  number("cluster.devices_per_node", job.cluster.devices_per_node);
  number("layout.dp", layout.dp);
  number("layout.tp", layout.tp);
  number("layout.pp", layout.pp);
  number("layout.vpp", layout.vpp.value_or(1));
  number("layout.cp", layout.cp);
  number("layout.ep", layout.ep);
  values["layout.tensor_parallel"] = tensor_parallel_names()[static_cast<std::size_t>(layout.tensor_parallel)];
  number("layout.tensor_depth", layout.tensor_depth);
  values["layout.context_parallel"] = context_parallel_names()[static_cast<std::size_t>(layout.context_parallel)];
  values["layout.sequence_parallel"] = yes_no(layout.sequence_parallel);
  if (layout.schedule.rfind("interleaved", 0) == 0) number("layout.group_size", layout.pp);
  const ScheduleInfo* schedule = find_schedule(layout.schedule.substr(0, layout.schedule.find(':')));
  if (schedule != nullptr && schedule->asynchronous) {
    ScheduleRequest request;
    request.pipeline_ranks = layout.pp;
    request.microbatches = layout.microbatches();
    number("layout.accumulation", schedule->weights.accumulation(request));
  }
  number("layout.micro_batch_size", layout.micro_batch_size);
  values["layout.schedule"] = layout.schedule;
  values["layout.stage_layers"] = fmt::format("{}", fmt::join(layout.stage_layers, ","));
  values["layout.recompute"] = recompute_names()[static_cast<std::size_t>(layout.recompute)];
  values["layout.partition_checkpoints"] = yes_no(layout.partition_checkpoints);
  values["layout.data_parallel"] = data_parallel_names()[static_cast<std::size_t>(layout.data_parallel)];
  number("layout.shards", layout.shards);
  values["layout.reshard_after_forward"] = yes_no(layout.reshard_after_forward);
  number("layout.spare_hosts", layout.spare_hosts);
  number("layout.zero", layout.zero);
  values["layout.compression"] = layout.compression.text();
  values["layout.offload"] = offload_names()[static_cast<std::size_t>(layout.offload)];
  std::string placement;
  for (const Axis axis : layout.placement) {
    placement += (placement.empty() ? "" : "-") + axis_names()[static_cast<std::size_t>(axis)];
  }
  values["layout.placement"] = placement;
  number("training.sequence_length", training.sequence_length);
  values["training.precision"] = std::string(name_of(training.precision));
  values["training.optimizer"] = optimizer_names()[static_cast<std::size_t>(training.optimizer)];
  values["training.attention"] = training.flash_attention ? "flash" : "unfused";
  values["training.transport"] = transport_names()[static_cast<std::size_t>(training.transport)];
  values["training.gradient_transport"] = transport_names()[static_cast<std::size_t>(training.gradient_transport)];
  values["training.stack"] = training.stack.name;
  return values;
}

struct Section {
  nlohmann::json given;      // what file and flags say
  nlohmann::json catalogue;  // the entry it starts from, null without one
  std::string entry;
};

Section section_of(const nlohmann::json& root, const std::string& name, CatalogueKind kind, const std::string& entry) {
  Section section;
  section.given = root.value(name, nlohmann::json());
  section.catalogue = catalogue_values(kind, entry);
  section.entry = entry;
  return section;
}

}  // namespace

Table config_table(const Job& job, const nlohmann::json& root) {
  const std::map<std::string_view, std::string> defaults = defaults_of(job);
  std::map<std::string, Section> sections;
  sections["model"] = section_of(root, "model", CatalogueKind::kModels, job.model.name);
  sections["cluster"] = section_of(root, "cluster", CatalogueKind::kClusters, job.cluster.name);
  sections["layout"].given = root.value("layout", nlohmann::json::object());
  sections["training"].given = root.value("training", nlohmann::json::object());

  const nlohmann::json profile = sections["training"].given.value("profile", nlohmann::json::object());
  const nlohmann::json measured =
      profile.is_object() ? profile.value("cluster", nlohmann::json::object()) : nlohmann::json::object();
  Table table;
  table.columns = {text_column("key"), text_column("value"), text_column("origin")};
  for (const JobKey& key : job_keys()) {
    const std::string field(key.field);
    const std::size_t dot = field.find('.');
    const Section& section = sections[field.substr(0, dot)];
    if (dot == std::string::npos) {
      table.rows.push_back({field, section.given.is_null() ? "" : shown(section.given), job.origins.where(field)});
      continue;
    }
    const std::string name = field.substr(dot + 1);
    const auto chosen = defaults.find(key.field);
    if (section.given.is_object() && section.given.contains(name)) {
      table.rows.push_back({field, shown(section.given.at(name)), job.origins.where(field)});
    } else if (field.starts_with("cluster.") && measured.contains(name)) {
      table.rows.push_back({field, shown(measured.at(name)), "profile " + shown(profile)});
    } else if (section.catalogue.is_object() && section.catalogue.contains(name)) {
      table.rows.push_back({field, shown(section.catalogue.at(name)), "catalogue entry " + section.entry});
    } else if (field == "training.attention") {
      table.rows.push_back({field, chosen->second, "catalogue entry " + job.training.stack.name});
    } else {
      table.rows.push_back({field, chosen == defaults.end() ? "" : chosen->second, "default"});
    }
  }
  return table;
}

}  // namespace flopcast
