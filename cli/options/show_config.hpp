#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/text/table.hpp"
#include "model/job.hpp"

namespace flopcast {

/// Every key of job_keys() with its value and where that comes from: a flag, a place in a file, a catalogue entry, or
/// the default. `root` is the job's JSON with flags laid over it, `job` the prepared job that it means. A key without a
/// value has an empty one.
Table config_table(const Job& job, const nlohmann::json& root);

}  // namespace flopcast
