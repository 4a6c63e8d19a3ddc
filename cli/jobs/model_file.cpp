#include "cli/jobs/model_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/host/files.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/read_profile.hpp"

namespace flopcast {

namespace {

bool ends_with(std::string_view text, std::string_view ending) {
  return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

bool is_path(const std::string& name) {
  const std::vector<std::string> known = catalogue_names(CatalogueKind::kModels);
  if (std::find(known.begin(), known.end(), name) != known.end()) return false;
  return ends_with(name, ".txt") || ends_with(name, ".json");
}

}  // namespace

void read_profile_file(nlohmann::json& root, Origins& origins) {
  const auto model = root.find("model");
  if (model == root.end()) return;
  const bool named = model->is_object() && model->contains("name");
  const nlohmann::json& name = named ? model->at("name") : *model;
  if (!name.is_string() || !is_path(name.get<std::string>()) || lists_measured_layers(*model)) return;
  const std::string path = name.get<std::string>();
  const std::string text = read_file(path);
  nlohmann::json values;
  if (ends_with(path, ".txt")) {
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

}  // namespace flopcast
