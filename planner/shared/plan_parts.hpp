#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "planner/search/search.hpp"

namespace flopcast {

/// What a search has found, as a line that another process reads back to the bit. `root` is the job file.
std::string write_part(const nlohmann::json& root, const SearchResult& result);
/// Nothing where the line is none.
std::optional<SearchResult> read_part(const nlohmann::json& root, const std::string& line);

}  // namespace flopcast
