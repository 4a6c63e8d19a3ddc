#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/config/document.hpp"

namespace flopcast {

/// Tells `origins` that `field` of the job, and what it holds, comes from `file`, where it is at `pointer`: messages
/// then name the file and the place in it.
void add_file_places(const nlohmann::json& value, const std::string& file, const std::string& pointer,
                     const std::string& field, Origins& origins);

}  // namespace flopcast
