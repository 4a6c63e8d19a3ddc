#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "model/job.hpp"
#include "planner/parallel_for.hpp"
#include "sim/files/comparison_file.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// Side by side: the step's terms, each with its difference to the first layout, then rates and memory.
std::vector<Table> comparison_tables(const std::vector<ComparedLayout>& layouts);

/// What a run says of its step time.
struct MeasuredStep {
  double median_s = 0.0;
  int steps = 0;  ///< 0: a time that the user gave
  double p5_s = 0.0;
  double p95_s = 0.0;
};
/// Where the gap between a forecast and a measured step may come from, term by term, largest first.
Table gap_table(const Result& forecast, const MeasuredStep& measured);
/// Schema flopcast.gap/1.
std::string write_gap(const Result& forecast, const MeasuredStep& measured);

/// The fastest layout of each strategy for what a job file leaves its layout: memory, communication and compute
/// efficiency beside those of plain DP.
Table strategies_table(const nlohmann::json& job_file, const Origins& origins, const ReadFile& read_file,
                       const ParallelFor& parallel_for);
/// In words what a step of the job loses most to, and what single changes give: of batch, microbatch, recomputation,
/// chunks, ZeRO, sequence parallelism and ranks along an axis, each forecast by itself. Those that fit and give at
/// least 1 % more samples a second, the best first; of a job that does not fit, those that do. Left out: changes of
/// model and cluster, and two at once, which is what `flopcast plan` searches.
std::vector<std::string> advice_on(const Forecast& forecast, const ReadFile& read_file);
/// Of a job that does not fit, the three fastest of these changes after which it does; a hint where none does.
std::vector<std::string> what_fits(const Forecast& forecast, const ReadFile& read_file);
/// What changes of gradient exchange buy on the job as it stands, beside what is usually claimed.
Table optimizations_table(const Job& job, const ReadFile& read_file);

}  // namespace flopcast
