#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/imports.hpp"
#include "model/job.hpp"

namespace flopcast {

/// The steps of a log that count, in the order of the log.
struct StepsOfLog {
  std::vector<double> seconds;
  double median_s = 0.0;
  double p5_s = 0.0;
  double p95_s = 0.0;
};

/// Of a training log its steps behind the warm-up with the job's global batch size, those that skipped their update
/// left out. Throws ConfigError (field `flag`) when there is none, or when the log's ranks are not the job's devices.
StepsOfLog steps_of_log(const TrainingLog& log, const std::string& file, const std::string& flag, const Job& job);

/// An error of a forecast, predicted / measured - 1, on a day (YYYY-MM-DD).
struct DatedError {
  std::string date;
  double error = 0.0;
};
/// From a day on forecasts are off by another amount than before it.
struct Drift {
  std::string since;
  int runs_before = 0;
  int runs_since = 0;
  double error_before = 0.0;  ///< means
  double error_since = 0.0;
};
/// The day that parts the errors best: greatest t = |difference of means| / (s √(1/n + 1/m)), s pooled, at least three
/// runs on either side. Nothing where no day parts them by 1.5 % and t > 4, which a dozen days to choose from reach by
/// chance less than once in a hundred times.
std::optional<Drift> drift_of(std::vector<DatedError> errors);
/// "since 2026-05-03 forecasts are 6.1 % low; before 0.3 % high (9 and 12 runs)"
std::string drift_text(const Drift& drift);

/// The rows of a file of one's own runs: a list of {id, job, measured}, an object with such "rows", or one such row.
/// Throws ConfigError with the place in `file`.
std::vector<nlohmann::json> own_rows(const nlohmann::json& json, const std::string& file);

}  // namespace flopcast
