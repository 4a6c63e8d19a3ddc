#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "planner/plan/plan.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// A planned layout as `flopcast simulate` would answer it.
struct PlanEntry {
  PlannedLayout planned;
  nlohmann::json layout;  ///< the layout section of its job file
  Forecast forecast;
};

/// What `flopcast plan` prints.
struct PlanAnswer {
  nlohmann::json job;  ///< the job file of the best layout
  PlanOptions options;
  SearchResult search;
  std::vector<PlanEntry> ranked;
  std::vector<PlanEntry> pareto;
};

/// Schema flopcast.plan/1 (docs/schema/plan-1.schema.json).
nlohmann::ordered_json plan_json(const PlanAnswer& answer);
std::vector<Table> plan_tables(const PlanAnswer& answer);
/// The ranked layouts alone, for CSV.
Table ranked_table(const PlanAnswer& answer);
/// Step time over GPUs, or over memory where all have as many: the layouts of both tables, and the front through them.
std::string plan_svg(const PlanAnswer& answer);
Table rejected_table(const SearchResult& result);

}  // namespace flopcast
