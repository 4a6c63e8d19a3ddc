#include "model/catalog/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

std::string path_of(CatalogueKind kind, std::string_view name) {
  return fmt::format("{}/{}.json", name_of(kind), name);
}

const EmbeddedFile* find_file(CatalogueKind kind, std::string_view name) {
  const std::string path = path_of(kind, name);
  for (const EmbeddedFile& file : embedded_catalogue()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

bool is_figure(const nlohmann::json& value) {
  return value.is_object() && value.contains("value");
}

nlohmann::json without_sources(const nlohmann::json& entry) {
  nlohmann::json values = nlohmann::json::object();
  for (const auto& item : entry.items()) {
    if (item.key() == "sources") continue;
    if (is_figure(item.value())) {
      values[item.key()] = item.value().at("value");
    } else {
      values[item.key()] = item.value().is_object() ? without_sources(item.value()) : item.value();
    }
  }
  return values;
}

void collect_figures(const nlohmann::json& entry, const nlohmann::json& sources, const std::string& prefix,
                     std::vector<SourcedFigure>& figures) {
  for (const auto& item : entry.items()) {
    const std::string key = prefix + item.key();
    if (is_figure(item.value())) {
      const nlohmann::json& value = item.value().at("value");
      figures.push_back({key, value.is_string() ? value.get<std::string>() : value.dump(),
                         sources.at(item.value().at("source").get<std::string>()).get<std::string>()});
    } else if (item.value().is_object() && item.key() != "sources") {
      collect_figures(item.value(), sources, key + ".", figures);
    }
  }
}

}  // namespace

std::string_view name_of(CatalogueKind kind) {
  switch (kind) {
    case CatalogueKind::kModels:
      return "models";
    case CatalogueKind::kDevices:
      return "devices";
    case CatalogueKind::kClusters:
      return "clusters";
    case CatalogueKind::kStacks:
      return "stacks";
  }
  return "";
}

std::vector<std::string> catalogue_names(CatalogueKind kind) {
  const std::string folder = std::string(name_of(kind)) + "/";
  constexpr std::string_view kSuffix = ".json";
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_catalogue()) {
    if (file.path.substr(0, folder.size()) != folder) continue;
    const std::string_view name = file.path.substr(folder.size());
    names.emplace_back(name.substr(0, name.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

nlohmann::json plain_values(const nlohmann::json& file) {
  return without_sources(file);
}

nlohmann::json catalogue_values(CatalogueKind kind, std::string_view name) {
  const EmbeddedFile* file = find_file(kind, name);
  return file == nullptr ? nlohmann::json() : without_sources(nlohmann::json::parse(file->text));
}

CatalogueEntry catalogue_entry(CatalogueKind kind, std::string_view name) {
  const EmbeddedFile* file = find_file(kind, name);
  FLOPCAST_CHECK(file != nullptr);
  const nlohmann::json json = nlohmann::json::parse(file->text);
  CatalogueEntry entry;
  entry.name = json.at("name").get<std::string>();
  entry.description = json.at("description").get<std::string>();
  collect_figures(json, json.at("sources"), "", entry.figures);
  return entry;
}

namespace {

constexpr std::string_view kFolder = "profiles/";
constexpr std::string_view kSuffix = ".json";

std::string_view name_in(std::string_view path) {
  return path.substr(kFolder.size(), path.size() - kFolder.size() - kSuffix.size());
}

}  // namespace

std::vector<std::string> shipped_profile_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_profiles()) names.emplace_back(name_in(file.path));
  return names;
}

nlohmann::json shipped_profile(std::string_view name) {
  for (const EmbeddedFile& file : embedded_profiles()) {
    if (name_in(file.path) == name) return nlohmann::json::parse(file.text);
  }
  return {};
}

}  // namespace flopcast
