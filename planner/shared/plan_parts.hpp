#pragma once

#include <nlohmann/json.hpp>

#include "planner/search/search.hpp"

namespace flopcast {

/// What a search has found, as a line that another process reads back to the bit. `root` is the job file.
nlohmann::ordered_json part_json(const nlohmann::json& root, const SearchResult& result);
/// Whether part_of() can read it.
bool is_part(const nlohmann::json& root, const nlohmann::ordered_json& part);
SearchResult part_of(const nlohmann::json& root, const nlohmann::ordered_json& part);

}  // namespace flopcast
