#pragma once

#include <string>
#include <string_view>

#include "base/text/error.hpp"
#include "model/job.hpp"

namespace flopcast {

/// The job that this job file's text describes; the file is called "job.json".
Job job_from(std::string_view text);

/// The error for this text; an empty diagnostic if it is valid.
Diagnostic error_report(std::string_view text);

/// File reader for jobs that refer to no files: throws EnvironmentError if it is called.
std::string no_files(const std::string& path);

/// GPT-3 175B on eight DGX A100, as measured by Korthikanti et al.; `layout` replaces the keys of the layout.
std::string gpt3_job(std::string_view layout);

}  // namespace flopcast
