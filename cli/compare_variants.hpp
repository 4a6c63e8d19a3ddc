#pragma once

#include "cli/job_files.hpp"
#include "model/job.hpp"
#include "planner/parallel_for.hpp"
#include "reports/table.hpp"

namespace flopcast {

/// The fastest layout of each strategy: memory, communication and compute efficiency beside those of plain DP.
Table strategies_table(const LoadedJob& loaded, const ParallelFor& parallel_for);
/// What changes of gradient exchange buy on the job as it stands, beside what is usually claimed.
Table optimizations_table(const Job& job);

}  // namespace flopcast
