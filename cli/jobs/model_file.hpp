#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/config/document.hpp"

namespace flopcast {

/// When the model is the path of a layer profile (ours in JSON, or PipeDream's graph.txt), puts what the file holds in
/// its place; keys beside the path win over the file's. Other models stay as they are. Throws ConfigError when a path
/// of a profile cannot be read.
void read_profile_file(nlohmann::json& root, Origins& origins);

}  // namespace flopcast
