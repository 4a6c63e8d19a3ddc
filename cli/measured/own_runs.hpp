#pragma once

#include <string>
#include <vector>

#include "calibrate/runs/fit_runs.hpp"

namespace flopcast {

/// The rows of a JSON file of one's own runs, {"id", "job", "measured", "date"}, with their jobs read: "job" is a job
/// or a path beside the file; "measured" tells iteration_s or a rate, or names a training "log" beside the file; a row
/// as published measurements have it is mapped as they are. Throws ConfigError with file and row.
std::vector<OwnRun> read_own_runs(const std::string& file);

}  // namespace flopcast
