#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace flopcast {

/// YAML as JSON, plain words typed as Python's readers do: null, true and yes, whole and decimal numbers, else text.
/// Refuses keys given twice, nesting deeper than 64 and more than 100,000 values. Throws ConfigError with file:line,
/// also when flopcast was built without yaml-cpp.
nlohmann::json parse_yaml(std::string_view text, std::string_view file);

}  // namespace flopcast
