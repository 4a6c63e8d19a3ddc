#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "planner/plan/plan.hpp"
#include "reports/svg/canvas.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// A planned layout as `flopcast simulate` would answer it; its program, timeline and memory over time may be gone.
struct PlanEntry {
  PlannedLayout planned;
  Forecast forecast;
};

/// What `flopcast plan` prints.
struct PlanAnswer {
  PlanOptions options;
  SearchResult search;
  std::vector<PlanEntry> ranked;
  std::vector<PlanEntry> pareto;
  std::vector<std::string> notes;  ///< on what was searched
  bool verbose = false;            ///< with the rejected layouts and the rules of thumb
};

/// Layouts that take the same time and memory on as many GPUs are one: the first stands for all. Then the simplest of
/// those that nobody could measure apart from the best, within 0.2 % of its time, comes first: even stages, few chunks.
/// At most `wanted` are left.
void settle_ranking(std::size_t wanted, std::vector<PlannedLayout>& ranked);

/// Schema flopcast.plan/1 (docs/schema/plan-1.schema.json). `root` is the job file that was asked about.
std::string write_plan(const PlanAnswer& answer, const nlohmann::json& root);
std::vector<Table> plan_tables(const PlanAnswer& answer);
/// The ranked layouts alone, for CSV.
Table ranked_table(const PlanAnswer& answer);
/// What a layout cuts the model by: "tp 8 pp 8x3 dp 16".
std::string short_name(const Layout& layout);
/// Places of a fabric, those that follow each other as "0-15"; the first `most` such.
std::string places_text(const std::vector<int>& places, std::size_t most);
/// Step time over GPUs, or over memory where all have as many: the layouts of both tables, and the front through them.
std::string plan_svg(const PlanAnswer& answer, const FigureStyle& style);
Table rejected_table(const SearchResult& result);

}  // namespace flopcast
