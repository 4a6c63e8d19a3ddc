#pragma once

#include <string>
#include <vector>

#include "import/programs/launch.hpp"
#include "planner/space/space.hpp"

namespace flopcast {

/// Narrows what the job leaves open to what the program can be told (write_launch); what the job fixes stays as it is.
/// Returns what was left out, in words.
std::vector<std::string> keep_launchable(LaunchProgram program, const Job& job, SearchSpace& space);

}  // namespace flopcast
