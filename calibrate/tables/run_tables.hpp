#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/series.hpp"
#include "base/text/table.hpp"
#include "calibrate/verdict/run_comparison.hpp"

namespace flopcast {

/// Forecast, measurement and replay term by term, with the forecast's error.
Table run_table(const RunComparison& run);

/// Schema flopcast.run/1 (docs/schema/run-1.schema.json): forecast and measured as flopcast.result/1, error by term,
/// repetitions, and what disturbed them.
nlohmann::ordered_json run_json(const RunComparison& run);

/// The loss of every step of a run, under the name of its schedule.
Series loss_curve(const std::string& schedule, const std::vector<double>& losses);

/// The same from a measurement file that `flopcast run -o` kept. Throws ConfigError when it is none.
Series read_loss_curve(std::string_view text, const std::string& file);

/// Curves over steps as a chart.
SeriesChart loss_chart(std::vector<Series> curves);

}  // namespace flopcast
