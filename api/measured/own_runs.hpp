#pragma once

#include <string>
#include <vector>

#include "calibrate/runs/fit_runs.hpp"

namespace flopcast {

/// Reads the rows of a JSON file of the user's runs, {"id", "job", "measured", "date"}, and their jobs: "job" is a job
/// or a path relative to the file; "measured" holds iteration_s or a rate, or names a training "log" relative to the
/// file. A row in the form of the published measurements is mapped as they are. Throws ConfigError with file and row.
std::vector<OwnRun> read_own_runs(const std::string& file);

}  // namespace flopcast
