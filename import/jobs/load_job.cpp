#include "import/jobs/load_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

// Records in `origins` that `field` of the job, and everything below it, comes from `pointer` in `file`, so that
// messages name the file and the place in it.
void add_file_places(const nlohmann::json& value, const std::string& file, const std::string& pointer,
                     const std::string& field, Origins& origins) {
  origins.places[field] = pointer.empty() ? file : file + ":" + pointer;
  constexpr std::size_t kDeepest = 5;
  if (static_cast<std::size_t>(std::count(pointer.begin(), pointer.end(), '/')) >= kDeepest) return;
  if (value.is_array()) {
    for (std::size_t index = 0; index < value.size(); ++index) {
      const std::string inside = fmt::format("{}/{}", pointer, index);
      add_file_places(value[index], file, inside, fmt::format("{}.{}", field, index), origins);
    }
  }
  if (!value.is_object()) return;
  for (const auto& item : value.items()) {
    add_file_places(item.value(), file, pointer + "/" + item.key(), field + "." + item.key(), origins);
  }
}

// The text that names a value, alone or next to other keys: "nemo", {"name": "nemo", …}.
nlohmann::json* text_naming(nlohmann::json& value) {
  if (value.is_string()) return &value;
  const bool named = value.is_object() && value.contains("name") && value.at("name").is_string();
  return named ? &value.at("name") : nullptr;
}

// If training.stack is a path, replaces it with the description in that file: an object as a job may contain ("name" is
// the catalogue entry that it changes), or a whole entry as in the catalogue, with a source for each value. Keys next
// to the path override the file's.
void read_stack_file(const Files& files, nlohmann::json& root, Origins& origins) {
  const auto training = root.find("training");
  if (training == root.end() || !training->is_object() || !training->contains("stack")) return;
  nlohmann::json& stack = training->at("stack");
  const nlohmann::json* name = text_naming(stack);
  if (name == nullptr || !is_path(name->get<std::string>())) return;
  const std::string path = name->get<std::string>();
  const nlohmann::json file = parse_json(files.read(path), path);
  if (!file.is_object()) {
    throw ConfigError({"training.stack", fmt::format("{} must hold a JSON object", path), path,
                       "expected { \"name\": \"megatron-core\", \"gradient_bytes\": 2, … }"});
  }
  nlohmann::json values = plain_values(file);
  add_file_places(values, path, "", "training.stack", origins);
  if (stack.is_object()) {
    for (const auto& item : stack.items()) {
      if (item.key() != "name") values[item.key()] = item.value();
    }
  }
  stack = std::move(values);
}

// Reads cables from CSV lines from,to,bandwidth; a header line with these words is optional.
nlohmann::json cables_of_csv(const std::string& text, const std::string& path) {
  nlohmann::json cables = nlohmann::json::array();
  int line = 0;
  for (std::string row : split(text, '\n')) {
    ++line;
    if (!row.empty() && row.back() == '\r') row.pop_back();
    if (row.empty() || row.front() == '#' || row == "from,to,bandwidth") continue;
    const std::vector<std::string> cells = split(row);
    constexpr std::size_t kCells = 3;
    if (cells.size() != kCells) {
      refuse_at(fmt::format("{}:{}", path, line), fmt::format("{} is not a cable", quote(row)),
                "expected from,to,bandwidth such as node0,leaf0,50GB/s");
    }
    cables.push_back({{"from", cells[0]}, {"to", cells[1]}, {"bandwidth", cells[2]}});
  }
  return cables;
}

// Replaces the paths of network files with their contents: cluster.network (a description as a job may contain; keys
// next to the path override it), and its links.
void read_network_files(const Files& files, nlohmann::json& root, Origins& origins) {
  const auto cluster = root.find("cluster");
  if (cluster == root.end() || !cluster->is_object() || !cluster->contains("network")) return;
  nlohmann::json& network = cluster->at("network");
  const bool keyed = network.is_object() && network.contains("preset");
  const nlohmann::json name = keyed ? network.at("preset") : network;
  if (name.is_string() && is_path(name.get<std::string>())) {
    const std::string path = name.get<std::string>();
    const nlohmann::json file = parse_json(files.read(path), path);
    if (!file.is_object()) {
      throw ConfigError({"cluster.network", fmt::format("{} must hold a JSON object", path), path,
                         R"(expected { "topology": "tree", "tiers": […], … })"});
    }
    nlohmann::json values = plain_values(file);
    for (const char* told : {"name", "description"}) values.erase(told);
    add_file_places(values, path, "", "cluster.network", origins);
    if (keyed) {
      for (const auto& item : network.items()) {
        if (item.key() != "preset") values[item.key()] = item.value();
      }
    }
    network = std::move(values);
  }
  if (!network.is_object() || !network.contains("links") || !network.at("links").is_string()) return;
  const std::string path = network.at("links").get<std::string>();
  network["links"] = cables_of_csv(files.read(path), path);
}

// A word that is neither a file nor looks like a path was meant as a name.
void refuse_unknown_name(const Files& files, const std::string& text) {
  const bool like_a_path = text.find_first_of("/.\\") != std::string::npos;
  if (like_a_path || files.kind_of(text) != Files::Kind::kNone) return;
  throw ConfigError({"training.profile", fmt::format("\"{}\" is neither a file nor a profile of the catalogue", text),
                     "training.profile", choices_help(text, shipped_profile_names())});
}

bool is_profile_path(const std::string& name) {
  const std::vector<std::string> known = catalogue_names(CatalogueKind::kModels);
  if (std::find(known.begin(), known.end(), name) != known.end()) return false;
  return name.ends_with(".txt") || name.ends_with(".json");
}

// If the model is the path of a layer profile (flopcast's JSON, or PipeDream's graph.txt), replaces it with the
// contents of the file; keys next to the path override the file's. Other models stay as they are.
void read_profile_file(const Files& files, nlohmann::json& root, Origins& origins) {
  const auto model = root.find("model");
  if (model == root.end()) return;
  const bool named = model->is_object() && model->contains("name");
  const nlohmann::json& name = named ? model->at("name") : *model;
  if (!name.is_string() || !is_profile_path(name.get<std::string>()) || is_complete_model(*model)) return;
  const std::string path = name.get<std::string>();
  const std::string text = files.read(path);
  nlohmann::json values;
  if (path.ends_with(".txt")) {
    values = profile_from_graph(text, path);
  } else {
    values = parse_json(text, path);
    if (!lists_measured_layers(values)) return;
    if (!values.contains("name")) values["name"] = path;
  }
  if (named) {
    for (const auto& item : model->items()) {
      if (item.key() != "name") values[item.key()] = item.value();
    }
  }
  root["model"] = std::move(values);
  origins.section_files["model"] = path;
}

ImportContext context_of(const std::vector<FlagValue>& flags, const Files& files) {
  ImportContext context;
  for (const FlagValue& flag : flags) context.given.emplace(flag.key->field, flag.text);
  context.files = &files;
  return context;
}

// The model's name or path in a job, given alone or next to other keys.
nlohmann::json* model_name(nlohmann::json& root) {
  const auto model = root.find("model");
  // A model that is fully described is not looked up: its name is only a label.
  return model == root.end() || is_complete_model(*model) ? nullptr : text_naming(*model);
}

bool names_a_file(const std::string& name) {
  const std::vector<std::string> known = catalogue_names(CatalogueKind::kModels);
  return is_path(name) && std::find(known.begin(), known.end(), name) == known.end();
}

// The values of a job file with their places, so that they can override other files.
ImportedJob place_job_file(const std::string& text, const std::string& file, const ImportContext& context) {
  ImportedJob imported = import_job(ForeignFile(text, file), context);
  if (!imported.format->is_job_file) {
    for (const char* section : {"model", "cluster", "layout", "training"}) imported.places.emplace(section, file);
    return imported;
  }
  if (!imported.job->is_object()) {
    throw ConfigError(
        {"", fmt::format("{} must hold a JSON object", file), file, "expected { \"model\": …, \"cluster\": …, … }"});
  }
  nlohmann::json* name = model_name(imported.job);
  if (name != nullptr && names_a_file(name->get<std::string>())) {
    *name = sibling_path(file, name->get<std::string>());
  }
  const auto failures = imported.job->find("failures");
  if (failures != imported.job->end() && failures->is_object() && failures->contains("log")) {
    nlohmann::json& log = failures->at("log");
    if (log.is_string()) log = sibling_path(file, log.get<std::string>());
  }
  const auto cluster = imported.job->find("cluster");
  if (cluster != imported.job->end() && cluster->is_object() && cluster->contains("network")) {
    nlohmann::json& network = cluster->at("network");
    nlohmann::json* const named = network.is_object() && network.contains("preset") ? &network["preset"] : &network;
    nlohmann::json* const links = network.is_object() && network.contains("links") ? &network["links"] : nullptr;
    for (nlohmann::json* path : {named, links}) {
      const bool given = path != nullptr && path->is_string() && (path == links || is_path(path->get<std::string>()));
      if (given) *path = sibling_path(file, path->get<std::string>());
    }
  }
  const auto training = imported.job->find("training");
  if (training == imported.job->end() || !training->is_object()) return imported;
  const auto profile = training->find("profile");
  if (profile != training->end() && profile->is_string()) *profile = sibling_path(file, profile->get<std::string>());
  const auto stack = training->find("stack");
  nlohmann::json* stack_name = stack == training->end() ? nullptr : text_naming(*stack);
  if (stack_name != nullptr && is_path(stack_name->get<std::string>())) {
    *stack_name = sibling_path(file, stack_name->get<std::string>());
  }
  return imported;
}

void add_places(const std::string& file, ImportedJob& imported) {
  for (const auto& section : imported.job->items()) {
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

// Merges the number of nodes from a launch script with the cluster named by --cluster.
void merge_cluster(const nlohmann::json& told, LoadedJob& loaded) {
  const auto cluster = loaded.root->find("cluster");
  if (cluster == loaded.root->end() || !cluster->is_string() || !told.is_object()) return;
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
  // The name comes from the flag, the counts from the script.
  loaded.origins.flags["cluster.name"] = loaded.origins.flags["cluster"];
  loaded.origins.flags.erase("cluster");
}

void read_model_path(const ImportContext& flags_context, LoadedJob& loaded) {
  const nlohmann::json* name = model_name(loaded.root);
  if (name == nullptr || !names_a_file(name->get<std::string>())) return;
  std::string path = name->get<std::string>();
  const Files& files = *flags_context.files;
  if (files.kind_of(path) == Files::Kind::kFolder) path += "/config.json";
  const std::optional<std::string> text = files.try_read(path);
  if (!text) {
    const std::string given = name->get<std::string>();
    const std::size_t slash = given.rfind('/');
    const std::vector<std::string> near = nearest_choices(given.substr(slash == std::string::npos ? 0 : slash + 1),
                                                          catalogue_names(CatalogueKind::kModels));
    const std::string meant = near.empty() ? "" : fmt::format("did you mean {}? ", near.front());
    throw ConfigError({"model", fmt::format("\"{}\" is neither a readable file nor a known model", path),
                       loaded.origins.where("model"), meant + hub_help(given)});
  }
  const ForeignFile file(*text, path);
  if (!format_of(file).is_model) return;
  ImportContext context = flags_context;
  for (const auto& section : loaded.root->items()) {
    if (!section.value().is_object()) continue;
    for (const auto& item : section.value().items()) context.given.emplace(section.key() + "." + item.key(), "");
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
  loaded.keys.add(imported.keys);
}

void refuse_unmodelled(const LoadedJob& loaded) {
  std::vector<std::string> told;
  for (const std::string& key : loaded.keys.not_modelled) told.push_back(fmt::format("{} is not modelled", key));
  for (const std::string& key : loaded.keys.unknown) told.push_back(fmt::format("{} is an unknown key", key));
  if (told.empty()) return;
  throw ConfigError({"--strict", fmt::format("{}", fmt::join(told, ", ")), loaded.origins.file,
                     "remove them from a copy of the file, or omit --strict"});
}

}  // namespace

void read_device_profile_file(const Files& files, nlohmann::json& root, Origins& origins) {
  const auto training = root.find("training");
  if (training == root.end() || !training->is_object() || !training->contains("profile")) return;
  nlohmann::json& profile = training->at("profile");
  if (!profile.is_string()) return;
  const std::string path = profile.get<std::string>();
  if (nlohmann::json shipped = shipped_profile(path); !shipped.is_null()) {
    profile = std::move(shipped);
    return;
  }
  refuse_unknown_name(files, path);
  nlohmann::json values = parse_json(files.read(path), path);
  add_file_places(values, path, "", "training.profile", origins);
  const auto cluster = values.find("cluster");
  if (cluster != values.end() && cluster->is_object()) {
    const nlohmann::json given = root.value("cluster", nlohmann::json());
    for (const auto& item : cluster->items()) {
      const bool overridden = given.is_object() && given.contains(item.key());
      if (!overridden) add_file_places(item.value(), path, "/cluster/" + item.key(), "cluster." + item.key(), origins);
    }
  }
  profile = std::move(values);
}

// "job.json" of "job.json:/training/optimizer"; for a flag, the flag.
std::string source_of(const std::string& place) {
  return place.substr(0, place.find(':'));
}

// Drops the GaLore rank of an earlier source if a later one sets another optimizer. A rank given by a flag is kept.
void drop_stale_rank(LoadedJob& loaded) {
  const auto training = loaded.root->find("training");
  if (training == loaded.root->end() || !training->is_object() || !training->contains("optimizer_rank")) return;
  const nlohmann::json optimizer = training->value("optimizer", nlohmann::json());
  if (!optimizer.is_string() || optimizer == "galore") return;
  const std::string rank_at = loaded.origins.where("training.optimizer_rank");
  const std::string optimizer_at = loaded.origins.where("training.optimizer");
  const bool by_flag = loaded.origins.flags.count("training.optimizer_rank") > 0;
  if (by_flag || source_of(rank_at) == source_of(optimizer_at)) return;
  loaded.root["training"].erase("optimizer_rank");
  loaded.origins.places.erase("training.optimizer_rank");
  loaded.notes.push_back(fmt::format("{}: ignored, since {} sets training.optimizer to {}", rank_at, optimizer_at,
                                     optimizer.get<std::string>()));
}

LoadedJob load_job(const std::vector<std::string>& names, const std::vector<FlagValue>& flags, const Files& files,
                   const ImportOptions& options) {
  ImportContext context = context_of(flags, files);
  context.arguments = options.arguments;
  context.environment = options.environment;
  LoadedJob loaded;
  ImportedJob all;
  std::vector<ImportedJob> parts;
  bool reads_arguments = options.arguments.empty();
  for (const std::string& name : names) {
    const std::string text = files.read(name);
    reads_arguments = reads_arguments || ForeignFile(text, name).syntax() == ForeignFile::Syntax::kShell;
    ImportedJob imported = place_job_file(text, name, context);
    if (names.size() > 1) add_places(name, imported);
    all.merge(imported);
    parts.push_back(std::move(imported));
  }
  if (!reads_arguments) {
    throw ConfigError(
        {"--",
         fmt::format("\"{}\" is an argument for a launch script, but no script is given", options.arguments.front()),
         "", "put flopcast's own flags and files before --"});
  }
  if (!names.empty()) loaded.origins.file = names.front();
  loaded.origins.places = std::move(all.places);
  loaded.root = std::move(all.job);
  loaded.notes = std::move(all.notes);
  loaded.warnings = std::move(all.warnings);
  loaded.keys = std::move(all.keys);
  const nlohmann::json told_cluster = loaded.root->value("cluster", nlohmann::json());
  apply_flags(flags, loaded.root, loaded.origins);
  drop_stale_rank(loaded);
  merge_cluster(told_cluster, loaded);
  read_model_path(context, loaded);
  if (options.strict) refuse_unmodelled(loaded);
  read_profile_file(files, loaded.root, loaded.origins);
  read_device_profile_file(files, loaded.root, loaded.origins);
  read_stack_file(files, loaded.root, loaded.origins);
  read_interruption_log(files, loaded.root, loaded.origins);
  read_network_files(files, loaded.root, loaded.origins);
  for (const ImportedJob& part : parts) {
    for (std::string& refusal : refused_combinations(part, loaded.root)) loaded.warnings.push_back(std::move(refusal));
  }
  return loaded;
}

void LoadedJob::clear_dp() {
  if (root.contains("layout")) root["layout"].erase("dp");
}

void require_named_cluster(const LoadedJob& loaded) {
  const auto cluster = loaded.root->find("cluster");
  if (cluster == loaded.root->end() || !cluster->is_object()) return;
  // A device profile may name the devices.
  const auto training = loaded.root->find("training");
  if (training != loaded.root->end() && training->is_object() && training->contains("profile")) return;
  for (const auto& item : cluster->items()) {
    if (item.key() != "nodes" && item.key() != "devices_per_node") return;
  }
  std::string told;
  for (const auto& item : cluster->items()) {
    told += fmt::format("{}{} {}", told.empty() ? "" : ", ", item.key(), dumped(item.value()));
  }
  throw ConfigError({"cluster", fmt::format("is required: the script only gives {}, not the devices", told),
                     loaded.origins.where("cluster.nodes"),
                     "give --cluster NAME; " + choices_help("", catalogue_names(CatalogueKind::kClusters))});
}

}  // namespace flopcast
