#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/config/document.hpp"

namespace flopcast {

/// When training.profile is a path, puts the device profile that the file holds in its place, and tells `origins` which
/// of the cluster's keys come from there. Throws ConfigError when it cannot be read.
void read_device_profile_file(nlohmann::json& root, Origins& origins);

}  // namespace flopcast
