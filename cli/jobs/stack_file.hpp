#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/config/document.hpp"

namespace flopcast {

/// When training.stack is a path, puts the description that the file holds in its place: an object as a job may hold
/// itself ("name" is the catalogue's entry that it changes), or a whole entry as the catalogue writes them, with a
/// source beside each value. Throws ConfigError when it cannot be read.
void read_stack_file(nlohmann::json& root, Origins& origins);

}  // namespace flopcast
