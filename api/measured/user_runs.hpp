#pragma once

#include <string>
#include <vector>

#include "calibrate/runs/fit_runs.hpp"

namespace flopcast {

/// Reads the rows of a JSON file of the user's runs, {"id", "job", "measured", "date"}, and their jobs: "job" is a job
/// or a path relative to the file; "measured" has iteration_s or a rate, or names a training "log" relative to the
/// file. Rows in the format of the published measurements are mapped like these. Throws ConfigError with file and row.
std::vector<UserRun> read_user_runs(const std::string& file);

}  // namespace flopcast
