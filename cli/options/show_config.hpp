#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/text/table.hpp"
#include "import/jobs/load_job.hpp"
#include "model/job.hpp"

namespace flopcast {

/// What the job made of every key: rows key, value, origin. The origin is a flag, a place in a file, a catalogue entry,
/// a profile, "derived" where other keys decide, or "default". `job` is the prepared one.
Table config_table(const Job& job, const LoadedJob& loaded);

/// The same as JSON, with values as a job file has them and null where there is none. Read as a job file it is the job.
nlohmann::ordered_json config_json(const Job& job, const LoadedJob& loaded);

}  // namespace flopcast
