#pragma once

#include <string>
#include <string_view>

#include "base/text/error.hpp"
#include "model/job.hpp"

namespace flopcast {

/// The job that a job file with this text means; the file is called "job.json".
Job job_from(std::string_view text);

/// The complaint about it; an empty diagnostic when there is none.
Diagnostic complaint_about(std::string_view text);

/// For what reads files of a job that names none: throws EnvironmentError when it is asked for one.
std::string no_files(const std::string& path);

/// GPT-3 175B on eight DGX A100, as Korthikanti et al. measured it; `layout` replaces the layout's keys.
std::string gpt3_job(std::string_view layout);

}  // namespace flopcast
