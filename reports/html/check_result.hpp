#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace flopcast {

/// Checks what a page reads of every flopcast.result/1 inside `json`, wherever it lies: that figures are numbers, texts
/// texts, ranks a list. Files come from people and from other programs. Throws ConfigError with the field.
void check_results(const nlohmann::ordered_json& json, const std::string& file);

}  // namespace flopcast
