#pragma once

#include <string>

#include "api/flopcast.hpp"
#include "import/jobs/load_job.hpp"
#include "model/job.hpp"
#include "model/job/user_spelling.hpp"

namespace flopcast {

/// "max_gpus" becomes "max-gpus".
std::string with_dashes(std::string name);

/// The job key that a name means: its path, a flag with underscores for dashes, or the last word of its path if only
/// one section has it. Null if there is none.
const JobKey* job_key_of(const std::string& name);

/// Loads a job like the command line. Throws ConfigError, also for an unknown key.
LoadedJob load_input(const JobInput& input);
Job read_input_job(const JobInput& input);

}  // namespace flopcast
