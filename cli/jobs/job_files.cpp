#include "cli/jobs/job_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "base/host/files.hpp"
#include "cli/jobs/device_profile_file.hpp"
#include "cli/jobs/model_file.hpp"
#include "cli/jobs/stack_file.hpp"
#include "cli/jobs/yaml.hpp"
#include "import/programs/imported_job.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

std::optional<std::string> try_to_read(const std::string& path) {
  try {
    return read_file(path);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

class FilesOnDisk final : public Files {
 public:
  std::optional<std::string> read(const std::string& path) const override { return try_to_read(path); }
  nlohmann::json parse_yaml(std::string_view text, const std::string& file) const override {
    return flopcast::parse_yaml(text, file);
  }
};

ImportContext context_of(const std::vector<FlagValue>& flags) {
  static const FilesOnDisk files;
  ImportContext context;
  for (const FlagValue& flag : flags) context.given.emplace(flag.key->field);
  context.files = &files;
  return context;
}

// The model's name or path inside a job, whether it stands alone or beside other keys.
nlohmann::json* model_name(nlohmann::json& root) {
  const auto model = root.find("model");
  if (model == root.end()) return nullptr;
  if (model->is_string()) return &*model;
  const bool named = model->is_object() && model->contains("name") && model->at("name").is_string();
  return named ? &model->at("name") : nullptr;
}

bool names_a_file(const std::string& name) {
  const std::vector<std::string> known = catalogue_names(CatalogueKind::kModels);
  return is_path(name) && std::find(known.begin(), known.end(), name) == known.end();
}

// A job file's values with their places, so that it can be laid over other files.
ImportedJob read_job_file(const std::string& text, const std::string& file, const ImportContext& context) {
  ImportedJob imported = import_job(ForeignFile(text, file), context);
  if (!imported.format->is_job_file) {
    for (const char* section : {"model", "cluster", "layout", "training"}) imported.places.emplace(section, file);
    return imported;
  }
  if (!imported.job.is_object()) {
    throw ConfigError(
        {"", fmt::format("{} holds no JSON object", file), file, "expected { \"model\": …, \"cluster\": …, … }"});
  }
  nlohmann::json* name = model_name(imported.job);
  if (name != nullptr && names_a_file(name->get<std::string>())) {
    *name = path_beside(file, name->get<std::string>());
  }
  const auto training = imported.job.find("training");
  if (training == imported.job.end() || !training->is_object()) return imported;
  for (const char* key : {"profile", "stack"}) {
    const auto named = training->find(key);
    if (named == training->end() || !named->is_string()) continue;
    const std::string path = named->get<std::string>();
    if (std::string_view(key) == "profile" || is_path(path)) *named = path_beside(file, path);
  }
  return imported;
}

void add_places(const std::string& file, ImportedJob& imported) {
  for (const auto& section : imported.job.items()) {
    imported.places.emplace(section.key(), fmt::format("{}:/{}", file, section.key()));
    if (!section.value().is_object()) continue;
    for (const auto& item : section.value().items()) {
      imported.places.emplace(fmt::format("{}.{}", section.key(), item.key()),
                              fmt::format("{}:/{}/{}", file, section.key(), item.key()));
    }
  }
}

bool starts_with_a_count(const std::string& name) {
  const auto digit = [](unsigned char character) { return std::isdigit(character) != 0; };
  const auto end = std::find_if_not(name.begin(), name.end(), digit);
  return end != name.begin() && end != name.end() && *end == 'x';
}

// A launch script tells how many nodes there are, --cluster which: together they are the cluster.
void join_cluster(const nlohmann::json& told, LoadedJob& loaded) {
  const auto cluster = loaded.root.find("cluster");
  if (cluster == loaded.root.end() || !cluster->is_string() || !told.is_object()) return;
  const std::string name = cluster->get<std::string>();
  if (starts_with_a_count(name)) return;
  const nlohmann::json known = catalogue_values(CatalogueKind::kClusters, name);
  if (!known.is_object()) return;
  nlohmann::json joined = {{"name", name}};
  if (told.contains("nodes")) joined["nodes"] = told.at("nodes");
  const auto per_node = told.find("devices_per_node");
  if (per_node != told.end() && (!known.contains("devices_per_node") || known.at("devices_per_node") != *per_node)) {
    joined["devices_per_node"] = *per_node;
  }
  loaded.root["cluster"] = joined;
  // The name is the flag's, the counts are still the script's.
  loaded.origins.flags["cluster.name"] = loaded.origins.flags["cluster"];
  loaded.origins.flags.erase("cluster");
}

void read_model_path(const ImportContext& flags_context, LoadedJob& loaded) {
  const nlohmann::json* name = model_name(loaded.root);
  if (name == nullptr || !names_a_file(name->get<std::string>())) return;
  std::string path = name->get<std::string>();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path += "/config.json";
  const std::optional<std::string> text = try_to_read(path);
  if (!text) {
    throw ConfigError({"model", fmt::format("\"{}\" is neither a readable file nor a known model", path),
                       loaded.origins.where("model"), choices_help(path, catalogue_names(CatalogueKind::kModels))});
  }
  const ForeignFile file(*text, path);
  if (!format_of(file).is_model) return;
  ImportContext context = flags_context;
  for (const auto& section : loaded.root.items()) {
    if (!section.value().is_object()) continue;
    for (const auto& item : section.value().items()) context.given.insert(section.key() + "." + item.key());
  }
  ImportedJob imported = import_job(file, context);
  imported.places["model"] = path;
  nlohmann::json values = imported.job.at("model");
  if (loaded.root["model"].is_object()) {
    for (const auto& item : loaded.root["model"].items()) {
      if (item.key() == "name") continue;
      values[item.key()] = item.value();
      imported.places.erase("model." + item.key());
    }
  }
  loaded.root["model"] = values;
  loaded.origins.flags.erase("model");
  for (const auto& [field, place] : imported.places) loaded.origins.places[field] = place;
  loaded.notes.insert(loaded.notes.end(), imported.notes.begin(), imported.notes.end());
  loaded.warnings.insert(loaded.warnings.end(), imported.warnings.begin(), imported.warnings.end());
}

}  // namespace

LoadedJob load_job(const std::vector<std::string>& files, const std::vector<FlagValue>& flags) {
  const ImportContext context = context_of(flags);
  LoadedJob loaded;
  ImportedJob all;
  std::vector<ImportedJob> parts;
  for (const std::string& file : files) {
    ImportedJob imported = read_job_file(read_file(file), file, context);
    if (files.size() > 1) add_places(file, imported);
    all.merge(imported);
    parts.push_back(std::move(imported));
  }
  if (!files.empty()) loaded.origins.file = files.front();
  loaded.origins.places = std::move(all.places);
  loaded.root = std::move(all.job);
  loaded.notes = std::move(all.notes);
  loaded.warnings = std::move(all.warnings);
  const nlohmann::json told_cluster = loaded.root.value("cluster", nlohmann::json());
  apply_flags(flags, loaded.root, loaded.origins);
  join_cluster(told_cluster, loaded);
  read_model_path(context, loaded);
  read_profile_file(loaded.root, loaded.origins);
  read_device_profile_file(loaded.root, loaded.origins);
  read_stack_file(loaded.root, loaded.origins);
  for (const ImportedJob& part : parts) {
    for (std::string& refusal : refused_combinations(part, loaded.root)) loaded.warnings.push_back(std::move(refusal));
  }
  return loaded;
}

void require_named_cluster(const LoadedJob& loaded) {
  const auto cluster = loaded.root.find("cluster");
  if (cluster == loaded.root.end() || !cluster->is_object()) return;
  // A device profile may name the devices.
  const auto training = loaded.root.find("training");
  if (training != loaded.root.end() && training->is_object() && training->contains("profile")) return;
  for (const auto& item : cluster->items()) {
    if (item.key() != "nodes" && item.key() != "devices_per_node") return;
  }
  std::string told;
  for (const auto& item : cluster->items()) {
    told += fmt::format("{}{} {}", told.empty() ? "" : ", ", item.key(), item.value().dump());
  }
  throw ConfigError({"cluster", fmt::format("is required: only {} is told, not which devices", told),
                     loaded.origins.where("cluster.nodes"),
                     "give --cluster NAME; " + choices_help("", catalogue_names(CatalogueKind::kClusters))});
}

}  // namespace flopcast
