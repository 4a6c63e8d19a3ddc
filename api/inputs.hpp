#pragma once

#include <string>

#include "api/flopcast.hpp"
#include "import/jobs/load_job.hpp"
#include "model/job.hpp"
#include "model/job/typed_words.hpp"

namespace flopcast {

/// "max-gpus" of "max_gpus".
std::string with_dashes(std::string name);

/// The key of a job that a name means: its path, a flag with underscores for dashes, or the last word of its path where
/// one section alone has it. Null: none.
const JobKey* job_key_of(const std::string& name);

/// As the command line loads a job. Throws ConfigError, also for a key that no job has.
LoadedJob load_input(const JobInput& input);
Job read_input_job(const JobInput& input);

}  // namespace flopcast
