#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/table.hpp"
#include "planner/sweep/grid.hpp"
#include "reports/svg/heat_map.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// A figure of a result that tables and maps of a sweep show.
struct SweepMetric {
  const char* name;
  const char* words;    ///< with the unit, for a drawing
  const char* pointer;  ///< into a flopcast.result/1
  double scale;
  bool low_is_good;
};
/// Throws ConfigError naming --metric.
const SweepMetric& sweep_metric(const std::string& name);

/// What of a result a row keeps.
enum class SweepDetail {
  kFigures,  ///< what tables and maps show: 300 bytes a row
  kResult,   ///< all of it, for JSON: 6 kB a row
};

/// A combination of a sweep as a JSON object on one line: its values and its result, flopcast.result/1 or the figures
/// of one. One that makes no job is a row too, with the complaint instead of a result.
std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Forecast& forecast, SweepDetail detail);
std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Diagnostic& complaint);

/// What is read of it.
struct SweepRow {
  std::vector<std::string> values;             ///< by axis
  std::vector<std::optional<double>> figures;  ///< by metric
  std::optional<bool> fits;                    ///< nothing where there is no result
  std::string error;
};
/// Nothing where the line is no row of this sweep.
std::optional<SweepRow> read_sweep_row(const SweepGrid& grid, const std::string& line);

/// Schema flopcast.sweep/1 (docs/schema/sweep-1.schema.json) in pieces: what is before the rows, a row (after another
/// one unless it is the first), and what is after them.
std::string sweep_json_begin(const SweepGrid& grid);
std::string sweep_json_row(const std::string& row, bool first);
std::string sweep_json_end();

/// What a table shows of each row.
enum class SweepColumns {
  kStep,
  kStepAndRun,  ///< of jobs with failures: days and goodput of the run too
};
Table sweep_table(const SweepGrid& grid, const std::vector<SweepRow>& rows, SweepColumns columns);
/// Of a grid with two axes. Throws ConfigError where no combination has the figure.
HeatMap sweep_map(const SweepGrid& grid, const std::vector<SweepRow>& rows, const SweepMetric& metric);

}  // namespace flopcast
