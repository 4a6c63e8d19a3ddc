#include "model/config/codec.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson schema_of(const FieldInfo& field) {
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
  // Either a number of nodes or a list of nodes.
  if (field.kind == FieldKind::kWhole && field.parts != nullptr) {
    schema["type"] = {"integer", "array"};
    schema["items"] = schema_of(field.parts());
  }
  schema["description"] = description;
  if (!field.otherwise.empty()) {
    schema["description"] = fmt::format("{}; if absent: {}", description, field.otherwise);
  } else if (!field.required && !field.names_object && field.fallback != nullptr && field.parts == nullptr) {
    const OrderedJson fallback = field.fallback(field);
    if (!fallback.is_null()) schema["default"] = fallback;
  }
  return schema;
}

// Indexed by FieldKind.
constexpr std::array kTypesInFiles = {"integer", "number", "boolean", "string", "array",
                                      "string",  "string", "object",  "array"};

OrderedJson type_in_file(FieldKind kind, double smallest) {
  OrderedJson schema = {{"type", kTypesInFiles.at(static_cast<std::size_t>(kind))}};
  const bool bounded = kind == FieldKind::kWhole || kind == FieldKind::kNumber;
  if (bounded && smallest > kNoSmallest) schema["minimum"] = static_cast<std::int64_t>(smallest);
  return schema;
}

OrderedJson file_schema_of(const FieldInfo& field) {
  if (field.kind == FieldKind::kObject && field.parts != nullptr) return file_schema_of(field.parts(), field.help);
  const bool list = field.kind == FieldKind::kList;
  OrderedJson schema = type_in_file(field.kind, field.smallest);
  if (list && field.parts == nullptr) schema["items"] = type_in_file(field.elements, field.smallest);
  if (list && field.parts != nullptr && field.smallest > 0.0) {
    schema["minItems"] = static_cast<std::int64_t>(field.smallest);
  }
  if (!field.help.empty()) schema["description"] = field.help;
  if (list && field.parts != nullptr) schema["items"] = file_schema_of(field.parts());
  return schema;
}

}  // namespace

OrderedJson file_schema_of(const FieldInfos& fields, std::string_view description) {
  OrderedJson schema = {{"type", "object"}, {"required", OrderedJson::array()}, {"properties", OrderedJson::object()}};
  for (const FieldInfo* field : fields) {
    if (!field->later) schema["required"].push_back(field->key);
    schema["properties"][std::string(field->key)] = file_schema_of(*field);
  }
  if (!description.empty()) schema["description"] = description;
  return schema;
}

OrderedJson schema_of(const FieldInfos& fields) {
  OrderedJson schema = {{"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
  for (const FieldInfo* field : fields) {
    schema["properties"][std::string(field->key)] = schema_of(*field);
    if (field->names_object) schema["type"] = {"object", "string"};
  }
  return schema;
}

void read_quantity(ObjectReader& reader, const FieldInfo& field, std::optional<double>& number) {
  number = reader.quantity(field.key, field.dimension);
  if (!number) return;
  if (field.above_zero && *number <= 0.0) reader.fail(field.key, "is zero", "expected more than zero");
  if (field.largest > 0.0 && *number > field.largest) {
    reader.fail(field.key, fmt::format("{} is too large", *number),
                fmt::format("expected a number from 0 to {}", field.largest));
  }
}

OrderedJsonValue quantity_json(const FieldInfo& field, std::optional<double> number) {
  if (!number || (field.zero_is_none && *number == 0.0)) return nullptr;
  if (field.dimension == Dimension::kCount || field.dimension == Dimension::kMoney) return *number;
  return quantity_text(*number * field.unit, field.dimension);
}

JsonValue object_value(ObjectReader& reader, std::string_view key) {
  const nlohmann::json& value = *reader.find(key);
  if (!value.is_object()) reader.fail(key, fmt::format("{} is not an object", shown_value(value)), "");
  return value;
}

std::vector<std::string> listed_words(ObjectReader& reader, const FieldInfo& field, const char* such_as) {
  const nlohmann::json* value = reader.find(field.key);
  std::vector<std::string> words;
  if (value->is_string()) {
    words = split(value->get<std::string>());
  } else if (value->is_array()) {
    for (const nlohmann::json& word : *value) words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
  } else {
    reader.fail(field.key, fmt::format("{} is not a list", shown_value(*value)), such_as);
  }
  return words;
}

bool is_given(ObjectReader& reader, const FieldInfo& field) {
  if (reader.find(field.key) != nullptr) return true;
  if (field.required) {
    reader.fail_missing(field.key,
                        field.needed.empty() ? choices_help("", field.choices()) : std::string(field.needed));
  }
  return false;
}

void add_value(OrderedJson& object, const FieldInfo& field, OrderedJsonValue value) {
  if (value->is_null() && !field.always) return;
  if (value->is_null() && field.kind == FieldKind::kList) value = empty_list();
  object[std::string(field.key)] = std::move(*value);
}

OrderedJsonValue empty_list() {
  return OrderedJson::array();
}

void add_element(OrderedJson& list, OrderedJson&& value) {
  list.push_back(std::move(value));
}

void fail_unknown_field(std::string_view key) {
  throw InternalError(fmt::format("no field {}", key));
}

}  // namespace flopcast
