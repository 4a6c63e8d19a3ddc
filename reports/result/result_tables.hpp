#pragma once

#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/metrics/critical_path.hpp"

namespace flopcast {

/// "GPT-3 175B, 174.6 B parameters on 8 x dgx-a100-80g (64 a100-80g)" and the layout in a line.
std::string describe_job(const Job& job);

/// "± 6.1 %".
std::string plus_minus(const StepTimeInterval& interval);
/// A forecast as people read it: the step, where its time goes, memory by pipeline rank.
std::vector<Table> result_tables(const Forecast& forecast);
/// The longest chain of work and transfers, by what it consists of: shortening anything else does not help.
Table critical_path_table(const Timeline& timeline, const CriticalPath& path);
/// Memory by pipeline rank, in GiB.
Table memory_table(const Forecast& forecast);
/// The tensors of the fullest rank at its fullest moment, largest first.
Table memory_parts_table(const Forecast& forecast);
/// The memory of each rank over time, at the moments it changes.
Table memory_over_time_table(const Forecast& forecast);
/// One row with every figure, for a spreadsheet: the JSON's keys joined by dots.
Table result_row(const Forecast& forecast);

}  // namespace flopcast
