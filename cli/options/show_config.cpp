#include "cli/options/show_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/catalog/catalogue.hpp"
#include "model/job/fields.hpp"
#include "model/job/write_job.hpp"

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

struct ConfigRow {
  std::string key;
  OrderedJson value;
  std::string origin;
};

// The value at a dotted path; what names an object stands for it. Null where there is none.
template <class Json>
const Json* value_at(const Json& root, std::string_view path) {
  const Json* value = &root;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    if (!value->is_object()) return nullptr;
    const auto entry = value->find(std::string(path.substr(0, dot)));
    if (entry == value->end()) return nullptr;
    value = &*entry;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

// What file and flags say of a key.
const nlohmann::json* given_at(const nlohmann::json& root, const JobKey& key) {
  const nlohmann::json* value = value_at(root, key.field);
  const bool named = key.entry->names_object && value != nullptr && value->is_object();
  return named ? value_at(*value, key.entry->key) : value;
}

bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

// "8xdgx-h100" tells the nodes, too.
bool tells_nodes(const nlohmann::json* cluster) {
  if (cluster == nullptr || !cluster->is_string()) return false;
  const std::string name = cluster->get<std::string>();
  const std::size_t digits = name.find_first_not_of("0123456789");
  return digits != std::string::npos && digits > 0 && name[digits] == 'x';
}

// The rows of one job.
class ConfigRows {
 public:
  ConfigRows(const Job& job, const nlohmann::json& root) : job_(job), root_(root), values_(job_json(job)) {
    values_["training"]["stack"] = stack_json(job.training.stack);
    // Below the name of a part stands what the catalogue says of it, the innermost part first.
    add_entry("cluster.device", CatalogueKind::kDevices, job.cluster.device.name);
    add_entry("training.stack", CatalogueKind::kStacks, job.training.stack.name);
    add_entry("model", CatalogueKind::kModels, job.model.name);
    add_entry("cluster", CatalogueKind::kClusters, job.cluster.name);
    const nlohmann::json* profile = value_at(root, "training.profile");
    if (profile != nullptr && profile->is_object()) {
      profile_name_ = profile->value("name", "");
      measured_["cluster"] = profile->value("cluster", nlohmann::json::object());
      if (profile->contains("curves")) measured_["cluster"]["curves"] = profile->at("curves");
    }
  }

  std::vector<ConfigRow> rows() const {
    std::vector<ConfigRow> rows;
    for (const JobKey& key : job_keys()) rows.push_back({key.field, value_of(key), origin_of(key)});
    return rows;
  }

 private:
  struct CatalogueValues {
    std::string path;
    std::string name;
    nlohmann::json values;
  };

  void add_entry(const std::string& path, CatalogueKind kind, const std::string& name) {
    nlohmann::json values = catalogue_values(kind, name);
    if (values.is_object()) catalogue_.push_back({path, name, std::move(values)});
  }

  const CatalogueValues* catalogued(const JobKey& key) const {
    for (const CatalogueValues& entry : catalogue_) {
      if (!starts_with(key.field, entry.path + ".")) continue;
      // A device that tells everything is not looked up.
      const nlohmann::json* inline_device = value_at(root_, "cluster.device.peak");
      if (entry.path == "cluster.device" && inline_device != nullptr) continue;
      if (value_at(entry.values, std::string_view(key.field).substr(entry.path.size() + 1)) != nullptr) return &entry;
    }
    return nullptr;
  }

  OrderedJson value_of(const JobKey& key) const {
    if (key.entry->write != nullptr) {
      const std::string path = key.entry->names_object ? fmt::format("{}.{}", key.field, key.entry->key) : key.field;
      const OrderedJson* value = value_at(values_, path);
      return value == nullptr ? OrderedJson() : *value;
    }
    // What no job keeps, since it only helped to find other keys.
    if (const nlohmann::json* given = given_at(root_, key)) return *given;
    if (const nlohmann::json* measured = value_at(measured_, key.field)) return *measured;
    const CatalogueValues* entry = catalogued(key);
    if (entry == nullptr) return nullptr;
    return *value_at(entry->values, std::string_view(key.field).substr(entry->path.size() + 1));
  }

  std::string origin_of(const JobKey& key) const {
    if (given_at(root_, key) != nullptr) return place_of(key.field);
    if (key.field == "cluster.nodes" && tells_nodes(value_at(root_, "cluster"))) return place_of("cluster");
    const nlohmann::json* measured = value_at(measured_, key.field);
    if (measured != nullptr) return "profile " + profile_name_;
    if (const CatalogueValues* entry = catalogued(key)) return "catalogue entry " + entry->name;
    if (key.field == "training.attention") return stack_attention_origin();
    return key.entry->otherwise.empty() || value_of(key).is_null() ? "default" : "derived";
  }

  std::string place_of(const std::string& field) const {
    const std::string place = job_.origins.where(field);
    return place.empty() ? "the question" : place;
  }

  // Where nobody says it, the stack does.
  std::string stack_attention_origin() const {
    const bool given = value_at(root_, "training.stack.attention") != nullptr;
    return given ? place_of("training.stack.attention") : "catalogue entry " + job_.training.stack.name;
  }

  const Job& job_;
  const nlohmann::json& root_;
  OrderedJson values_;
  std::vector<CatalogueValues> catalogue_;
  nlohmann::json measured_ = nlohmann::json::object();
  std::string profile_name_;
};

// Short enough for a cell: a text as it is, an object by its name.
std::string cell(const OrderedJson& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("name")) return cell(value.at("name"));
  constexpr std::size_t kLongest = 60;
  const std::string text = value.dump();
  return text.size() > kLongest ? text.substr(0, kLongest) + "…" : text;
}

}  // namespace

Table config_table(const Job& job, const LoadedJob& loaded) {
  Table table;
  table.columns = {text_column("key"), text_column("value"), text_column("origin")};
  for (const ConfigRow& row : ConfigRows(job, loaded.root).rows()) {
    table.rows.push_back({row.key, cell(row.value), row.origin});
  }
  return table;
}

OrderedJson config_json(const Job& job, const LoadedJob& loaded) {
  OrderedJson rows = OrderedJson::array();
  for (const ConfigRow& row : ConfigRows(job, loaded.root).rows()) {
    rows.push_back({{"key", row.key}, {"value", row.value}, {"origin", row.origin}});
  }
  return rows;
}

}  // namespace flopcast
