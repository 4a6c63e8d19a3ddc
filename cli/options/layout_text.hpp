#pragma once

#include <string>
#include <vector>

#include "model/job/flags.hpp"

namespace flopcast {

/// The job key that a user means by "tp", "--tp", "layout.tp" or "cluster.nodes"; throws ConfigError naming `where`.
const JobKey& key_named(const std::string& name, const std::string& where);

/// "tp=8,pp=4,layout.stage_layers=5,3": keys and values; what follows a comma without a '=' belongs to the value
/// before.
std::vector<FlagValue> parse_layout_text(const std::string& text);

}  // namespace flopcast
