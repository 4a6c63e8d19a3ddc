#pragma once

#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// Whether layout.schedule is file:PATH.
bool has_program_file(const Job& job);

/// The schedule of that file, for this job. Communications in the file are left out, with a note; a bidirectional
/// schedule needs layout.chains, and its microbatches are those of all chains together. Sets layout.vpp. Throws
/// ConfigError where the schedule cannot be executed, or does not fit the job.
Program read_program_file(Job& job, const ReadFile& read_file);

}  // namespace flopcast
