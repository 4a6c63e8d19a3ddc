#include "model/job/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

void add_keys(const std::string& path, const FieldInfos& fields, std::vector<JobKey>& keys) {
  for (const FieldInfo* field : fields) {
    const std::string name = field->names_object ? path
                             : path.empty()      ? std::string(field->key)
                                                 : fmt::format("{}.{}", path, field->key);
    const bool opens = field->kind == FieldKind::kObject && field->parts != nullptr;
    if (!opens) keys.push_back({name, field->kind, field->aliases, field->value_name, field->help, field});
    if (opens) add_keys(name, field->parts(), keys);
  }
}

}  // namespace

double bounded_number(ObjectReader& reader, const FieldInfo& field) {
  const std::optional<double> number = reader.number(field.key);
  if (*number >= field.smallest && *number <= kMostMeasured) return *number;
  reader.fail(field.key, fmt::format("{} is out of range", *number),
              fmt::format("expected a number from {:g} to {:g}", field.smallest, kMostMeasured));
}

const Fields<Job>& job_fields() {
  static const Fields<Job> fields = {
      other("model", FieldKind::kObject, "what is trained").of<model_fields>(),
      other("cluster", FieldKind::kObject, "on what").of<cluster_fields>(),
      other("layout", FieldKind::kObject, "how it is laid out").of<layout_fields>(),
      other("training", FieldKind::kObject, "and how it is trained").of<training_fields>(),
      other("failures", FieldKind::kObject, "what interrupts it").of<failure_fields>()};
  return fields;
}

const std::vector<JobKey>& job_keys() {
  static const std::vector<JobKey> keys = [] {
    std::vector<JobKey> all;
    add_keys("", infos_of<job_fields>(), all);
    return all;
  }();
  return keys;
}

OrderedJson job_schema() {
  OrderedJson schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                        {"title", "flopcast job, version 1"},
                        {"description", "A job file (JSON; // comments are allowed), and the job inside a result."}};
  const OrderedJson rules = schema_of(infos_of<job_fields>());
  for (const auto& item : rules.items()) schema[item.key()] = item.value();
  // A model of measured layers lists them.
  OrderedJson& layers = schema["properties"]["model"]["properties"]["layers"];
  layers["type"] = {"integer", "array"};
  layers["items"] = schema_of(infos_of<profiled_layer_fields>());
  schema["required"] = {"model"};
  return schema;
}

}  // namespace flopcast
