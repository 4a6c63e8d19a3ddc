#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "model/catalog/catalogue.hpp"

namespace flopcast {

/// A published figure of failures, checkpoints or stragglers beside the run that a job says: what the source does not
/// tell of the job is assumed, and said.
struct FailureRow {
  std::string id;
  std::string quantity;
  std::string unit;
  double measured = 0.0;
  double forecast = 0.0;
  std::optional<double> low;  ///< of the band that the forecast is held to
  std::optional<double> high;
  std::string source;   ///< with the place in it
  std::string assumed;  ///< what the source does not say
  std::string missed;   ///< why the forecast lies outside the band; empty where it does not

  bool inside() const { return forecast >= low.value_or(forecast) && forecast <= high.value_or(forecast); }
};

/// A published figure that no run can be held against, and why.
struct OpenFailureRow {
  std::string id;
  std::string quantity;
  std::string reason;
};

struct FailureRows {
  std::vector<FailureRow> rows;
  std::vector<OpenFailureRow> inexpressible;
};

/// Forecasts every row of failure_rows.json. With `published`, the "rows" of a file with id and value, the measured
/// figures come from there: rows that it does not have are left out, rows of it that nothing here knows and that speak
/// of failures, stragglers or checkpoints are inexpressible. Throws ConfigError with the place in `file`.
FailureRows evaluate_failures(const nlohmann::json* published, const std::string& file);

/// The rows with their errors, then those left open.
std::vector<Table> failure_tables(const FailureRows& rows);

/// calibrate/validation/failure_rows.json, compiled in.
const std::vector<EmbeddedFile>& embedded_failure_rows();

}  // namespace flopcast
