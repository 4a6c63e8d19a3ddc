#include "tests/support/json_schema.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

#include "tests/support/folders.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number_integer();
  if (type == "boolean") return value.is_boolean();
  throw std::runtime_error("unknown type " + type);
}

bool has_one_of(const Json& value, const Json& types) {
  if (types.is_string()) return has_type(value, types);
  return std::any_of(types.begin(), types.end(), [&value](const Json& type) { return has_type(value, type); });
}

void refuse_unknown_keywords(const Json& schema) {
  static const std::set<std::string> known = {"$schema",
                                              "deprecated",
                                              "$ref",
                                              "title",
                                              "description",
                                              "type",
                                              "const",
                                              "enum",
                                              "required",
                                              "default",
                                              "properties",
                                              "propertyNames",
                                              "additionalProperties",
                                              "items",
                                              "minimum",
                                              "minItems",
                                              "maxItems",
                                              "pattern",
                                              "maximum",
                                              "if",
                                              "then",
                                              "definitions"};
  for (const auto& item : schema.items()) {
    if (known.count(item.key()) == 0) throw std::runtime_error("unknown schema keyword " + item.key());
  }
}

std::string scalar_violation(const Json& schema, const Json& value) {
  if (schema.contains("type") && !has_one_of(value, schema["type"])) {
    return "is not of type " + (schema["type"].is_string() ? schema["type"].get<std::string>() : schema["type"].dump());
  }
  if (schema.contains("const") && value != schema["const"]) return "is not " + schema["const"].dump();
  if (schema.contains("enum")) {
    for (const Json& choice : schema["enum"]) {
      if (choice == value) return "";
    }
    return "is not one of " + schema["enum"].dump();
  }
  if (schema.contains("minimum") && value.is_number() && value < schema["minimum"])
    return "is below " + schema["minimum"].dump();
  if (schema.contains("maximum") && value.is_number() && value > schema["maximum"])
    return "is above " + schema["maximum"].dump();
  if (schema.contains("pattern") && value.is_string()) {
    const std::regex pattern(schema["pattern"].get<std::string>());
    if (!std::regex_search(value.get<std::string>(), pattern)) return "does not match " + schema["pattern"].dump();
  }
  if (schema.contains("minItems") && value.size() < schema["minItems"].get<std::size_t>())
    return "has too few elements";
  if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<std::size_t>())
    return "has too many elements";
  return "";
}

std::string violation(const Json& file, const Json& schema, const Json& value, const std::string& place);

// A reference: "result-1.schema.json", "job-1.schema.json#/properties/layout" or "#/definitions/entry".
std::string violation_of_reference(const Json& file, const std::string& name, const Json& value,
                                   const std::string& place) {
  const std::size_t end = std::min(name.find('#'), name.size());
  const Json::json_pointer part(end == name.size() ? "" : name.substr(end + 1));
  if (end == 0) return violation(file, file.at(part), value, place);
  const Json other = Json::parse(read_text(project_folder() / "docs" / "schema" / name.substr(0, end)));
  return violation(other, other.at(part), value, place);
}

std::string violation_of_key(const Json& file, const Json& schema, const std::string& key, const Json& value,
                             const std::string& place) {
  if (schema.contains("propertyNames")) {
    const std::string named = violation(file, schema["propertyNames"], key, place + "." + key);
    if (!named.empty()) return named;
  }
  if (schema.contains("properties") && schema["properties"].contains(key)) {
    return violation(file, schema["properties"][key], value, place + "." + key);
  }
  return schema.value("additionalProperties", true) ? "" : place + " must not have " + key;
}

std::string violation(const Json& file, const Json& schema, const Json& value, const std::string& place) {
  refuse_unknown_keywords(schema);
  if (schema.contains("$ref")) return violation_of_reference(file, schema["$ref"], value, place);
  const std::string scalar = scalar_violation(schema, value);
  if (!scalar.empty()) return place + ": " + value.dump().substr(0, 80) + " " + scalar;
  if (schema.contains("required")) {
    for (const Json& key : schema["required"]) {
      if (!value.contains(key.get<std::string>())) return place + " lacks " + key.dump();
    }
  }
  if (value.is_object()) {
    for (const auto& item : value.items()) {
      std::string inner = violation_of_key(file, schema, item.key(), item.value(), place);
      if (!inner.empty()) return inner;
    }
  }
  if (schema.contains("if") && schema.contains("then") && violation(file, schema["if"], value, place).empty()) {
    std::string inner = violation(file, schema["then"], value, place);
    if (!inner.empty()) return inner;
  }
  if (schema.contains("items") && value.is_array()) {
    for (std::size_t index = 0; index < value.size(); ++index) {
      std::string inner = violation(file, schema["items"], value[index], place + "[" + std::to_string(index) + "]");
      if (!inner.empty()) return inner;
    }
  }
  return "";
}

}  // namespace

std::string schema_violation(const Json& schema, const Json& value, const std::string& place) {
  return violation(schema, schema, value, place);
}

}  // namespace flopcast
