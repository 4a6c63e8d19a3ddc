#include "tests/support/json_schema.hpp"

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

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

void refuse_unknown_keywords(const Json& schema) {
  static const std::set<std::string> known = {
      "$schema", "title",   "description", "type",     "const",   "enum",    "required", "properties",
      "items",   "minimum", "minItems",    "maxItems", "pattern", "maximum", "if",       "then"};
  for (const auto& item : schema.items()) {
    if (known.count(item.key()) == 0) throw std::runtime_error("unknown schema keyword " + item.key());
  }
}

std::string scalar_violation(const Json& schema, const Json& value) {
  if (schema.contains("type") && !has_type(value, schema["type"])) return "is no " + schema["type"].get<std::string>();
  if (schema.contains("const") && value != schema["const"]) return "is not " + schema["const"].dump();
  if (schema.contains("enum")) {
    for (const Json& choice : schema["enum"]) {
      if (choice == value) return "";
    }
    return "is none of " + schema["enum"].dump();
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

}  // namespace

std::string schema_violation(const Json& schema, const Json& value, const std::string& place) {
  refuse_unknown_keywords(schema);
  const std::string scalar = scalar_violation(schema, value);
  if (!scalar.empty()) return place + ": " + value.dump().substr(0, 80) + " " + scalar;
  if (schema.contains("required")) {
    for (const Json& key : schema["required"]) {
      if (!value.contains(key.get<std::string>())) return place + " lacks " + key.dump();
    }
  }
  if (schema.contains("properties")) {
    for (const auto& item : schema["properties"].items()) {
      if (!value.contains(item.key())) continue;
      const std::string inner = schema_violation(item.value(), value[item.key()], place + "." + item.key());
      if (!inner.empty()) return inner;
    }
  }
  if (schema.contains("if") && schema.contains("then") && schema_violation(schema["if"], value, place).empty()) {
    const std::string inner = schema_violation(schema["then"], value, place);
    if (!inner.empty()) return inner;
  }
  if (schema.contains("items") && value.is_array()) {
    for (std::size_t index = 0; index < value.size(); ++index) {
      const std::string inner =
          schema_violation(schema["items"], value[index], place + "[" + std::to_string(index) + "]");
      if (!inner.empty()) return inner;
    }
  }
  return "";
}

}  // namespace flopcast
