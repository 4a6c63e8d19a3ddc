#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "model/job.hpp"
#include "planner/parallel_for.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// One of the compared layouts, forecast now or read from a result.
struct ComparedLayout {
  std::string name;  ///< as the user gave it
  Result result;
  nlohmann::ordered_json json;  ///< the whole result, flopcast.result/1
};

/// Side by side: the step's terms, each with its difference to the first layout, then rates and memory.
std::vector<Table> comparison_tables(const std::vector<ComparedLayout>& layouts);
/// Schema flopcast.comparison/1: a, b and terms of the first two, and others for what follows.
nlohmann::ordered_json comparison_json(const std::vector<ComparedLayout>& layouts);

/// The fastest layout of each strategy for what a job file leaves its layout: memory, communication and compute
/// efficiency beside those of plain DP.
Table strategies_table(const nlohmann::json& job_file, const Origins& origins, const ReadFile& read_file,
                       const ParallelFor& parallel_for);
/// What changes of gradient exchange buy on the job as it stands, beside what is usually claimed.
Table optimizations_table(const Job& job, const ReadFile& read_file);

}  // namespace flopcast
