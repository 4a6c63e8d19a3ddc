#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flopcast {

/// Checks a value against the part of JSON Schema draft 7 that docs/schema uses: type, const, enum, required,
/// properties, propertyNames, additionalProperties, items, minimum, minItems, maxItems, pattern, if with then, and $ref
/// into the same file or another one in the folder. Returns the first violation with its place, or an empty string.
/// Throws std::runtime_error for an unknown keyword, so that no rule of a schema goes unchecked.
std::string schema_violation(const nlohmann::json& schema, const nlohmann::json& value, const std::string& place = "$");

}  // namespace flopcast
