#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/run_comparison.hpp"
#include "reports/table.hpp"

namespace flopcast {

/// Forecast, measurement and replay term by term, with the forecast's error.
Table run_table(const RunComparison& run);

/// Schema flopcast.run/1 (docs/schema/run-1.schema.json): forecast and measured as flopcast.result/1, error by term,
/// repetitions, and what disturbed them.
nlohmann::ordered_json run_json(const RunComparison& run);

/// What disturbed the run, or makes its forecast worthless, a sentence each.
std::vector<std::string> disturbance_texts(const RunComparison& run);

}  // namespace flopcast
