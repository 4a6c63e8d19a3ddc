#include "model/job/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/job/access.hpp"

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

void add_keys(const std::string& path, const Fields& fields, std::vector<JobKey>& keys) {
  for (const Field& field : fields) {
    const std::string name = field.names_object ? path
                             : path.empty()     ? std::string(field.key)
                                                : fmt::format("{}.{}", path, field.key);
    const bool opens = field.kind == FieldKind::kObject && field.parts != nullptr;
    if (!opens) keys.push_back({name, field.kind, field.aliases, field.value_name, field.help, &field});
    if (opens) add_keys(name, field.parts(), keys);
  }
}

OrderedJson schema_of(const Fields& fields);

// Numbers, choices, and which texts are quantities; what depends on other keys stays words.
OrderedJson schema_of(const Field& field) {
  OrderedJson schema;
  std::string description(field.help);
  switch (field.kind) {
    case FieldKind::kWhole:
      schema["type"] = "integer";
      if (field.largest > 0.0) {
        schema["minimum"] = static_cast<std::int64_t>(field.smallest);
        schema["maximum"] = static_cast<std::int64_t>(field.largest);
      }
      break;
    case FieldKind::kNumber:
      schema["type"] = "number";
      schema["minimum"] = 0;
      if (field.largest > 0.0) schema["maximum"] = field.largest;
      break;
    case FieldKind::kBoolean:
      schema["type"] = "boolean";
      break;
    case FieldKind::kText:
      schema["type"] = "string";
      break;
    case FieldKind::kChoice:
      schema["type"] = "string";
      schema["enum"] = field.choices();
      break;
    case FieldKind::kQuantity: {
      const bool bare = field.dimension == Dimension::kCount || field.dimension == Dimension::kMoney;
      schema["type"] = bare ? OrderedJson({"number", "string"}) : OrderedJson("string");
      if (!bare) description += "; units: " + accepted_units(field.dimension);
      break;
    }
    case FieldKind::kWholeList:
      schema["type"] = {"array", "string"};
      schema["items"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", static_cast<std::int64_t>(field.largest)}};
      break;
    case FieldKind::kList:
      schema["type"] = "array";
      if (field.parts != nullptr) {
        schema["items"] = schema_of(field.parts());
      } else {
        schema["type"] = {"array", "string"};
        schema["items"] = {{"type", "string"}, {"enum", field.choices()}};
      }
      break;
    case FieldKind::kObject:
      if (field.parts != nullptr) {
        schema = schema_of(field.parts());
      } else if (field.choices != nullptr) {
        schema["type"] = "object";
        schema["propertyNames"] = {{"enum", field.choices()}};
      } else {
        schema["type"] = {"object", "string"};
      }
      break;
  }
  // A count of nodes, or the nodes one by one.
  if (field.kind == FieldKind::kWhole && field.parts != nullptr) {
    schema["type"] = {"integer", "array"};
    schema["items"] = schema_of(field.parts());
  }
  schema["description"] = description;
  if (!field.otherwise.empty()) {
    schema["description"] = fmt::format("{}; where it is absent: {}", description, field.otherwise);
  } else if (!field.required && !field.names_object && field.fallback != nullptr && field.parts == nullptr) {
    const OrderedJson fallback = field.fallback(field);
    if (!fallback.is_null()) schema["default"] = fallback;
  }
  return schema;
}

OrderedJson schema_of(const Fields& fields) {
  OrderedJson schema = {{"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
  for (const Field& field : fields) {
    schema["properties"][std::string(field.key)] = schema_of(field);
    if (field.names_object) schema["type"] = {"object", "string"};
  }
  return schema;
}

}  // namespace

void read_quantity(ObjectReader& reader, const Field& field, std::optional<double>& number) {
  number = reader.quantity(field.key, field.dimension);
  if (!number) return;
  if (field.above_zero && *number <= 0.0) reader.fail(field.key, "is zero", "expected more than zero");
  if (field.largest > 0.0 && *number > field.largest) {
    reader.fail(field.key, fmt::format("{} is too large", *number),
                fmt::format("expected a number from 0 to {}", field.largest));
  }
}

OrderedJsonValue quantity_json(const Field& field, std::optional<double> number) {
  if (!number || (field.zero_is_none && *number == 0.0)) return nullptr;
  if (field.dimension == Dimension::kCount || field.dimension == Dimension::kMoney) return *number;
  return quantity_text(*number * field.unit, field.dimension);
}

std::vector<std::string> listed_words(ObjectReader& reader, const Field& field, const char* such_as) {
  const nlohmann::json* value = reader.find(field.key);
  std::vector<std::string> words;
  if (value->is_string()) {
    words = split(value->get<std::string>());
  } else if (value->is_array()) {
    for (const nlohmann::json& word : *value) words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
  } else {
    reader.fail(field.key, fmt::format("{} is no list", shown_value(*value)), such_as);
  }
  return words;
}

const Fields& job_fields() {
  static const Fields fields = {other("model", FieldKind::kObject, "what is trained").of(model_fields),
                                other("cluster", FieldKind::kObject, "on what").of(cluster_fields),
                                other("layout", FieldKind::kObject, "how it is laid out").of(layout_fields),
                                other("training", FieldKind::kObject, "and how it is trained").of(training_fields),
                                other("failures", FieldKind::kObject, "what interrupts it").of(failure_fields)};
  return fields;
}

const Field& field_named(const Fields& fields, std::string_view key) {
  const auto found = std::find_if(fields.begin(), fields.end(), [key](const Field& field) { return field.key == key; });
  FLOPCAST_CHECK(found != fields.end());
  return *found;
}

void read_fields(const Fields& fields, ObjectReader& reader, void* owner) {
  for (const Field& field : fields) {
    const nlohmann::json* value = reader.find(field.key);
    if (field.required && value == nullptr) {
      const std::string help = field.needed.empty() ? choices_help("", field.choices()) : std::string(field.needed);
      reader.fail_missing(field.key, help);
    }
    if (value != nullptr && field.read != nullptr) field.read(reader, field, owner);
  }
}

OrderedJson write_fields(const Fields& fields, const void* owner) {
  OrderedJson json = OrderedJson::object();
  for (const Field& field : fields) {
    if (field.write == nullptr) continue;
    OrderedJson value = field.write(field, owner);
    if (!value.is_null()) json[std::string(field.key)] = std::move(value);
  }
  return json;
}

const std::vector<JobKey>& job_keys() {
  static const std::vector<JobKey> keys = [] {
    std::vector<JobKey> all;
    add_keys("", job_fields(), all);
    return all;
  }();
  return keys;
}

OrderedJson job_schema() {
  OrderedJson schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                        {"title", "flopcast job, version 1"},
                        {"description", "A job file (JSON; // comments are allowed), and the job inside a result."}};
  const OrderedJson rules = schema_of(job_fields());
  for (const auto& item : rules.items()) schema[item.key()] = item.value();
  // A model of measured layers lists them.
  OrderedJson& layers = schema["properties"]["model"]["properties"]["layers"];
  layers["type"] = {"integer", "array"};
  layers["items"] = schema_of(profiled_layer_fields());
  schema["required"] = {"model"};
  return schema;
}

}  // namespace flopcast
