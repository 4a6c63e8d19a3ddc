#pragma once

#include <string>
#include <vector>

#include "realrun/launch/plan_from_job.hpp"

namespace flopcast::realrun {

/// Throws ConfigError on bad usage.
LaunchOptions parse_launch_options(const std::vector<std::string>& arguments);
/// False when there is none to show.
bool show_help(const LaunchOptions& options);

}  // namespace flopcast::realrun
