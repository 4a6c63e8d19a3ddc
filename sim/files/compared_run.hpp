#pragma once

#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/document.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/request.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

inline constexpr const char* kRunName = "flopcast.run/1";

/// Source of the times of a run's forecast.
enum class TimesFrom {
  kCalibration,  ///< measured in the minute before the run, on the same ranks
  kJob,          ///< prices of the job's cluster
};

/// One view of a step: forecast, replayed or measured.
struct RunView {
  Timeline step;   ///< the step with the median time
  Timeline drawn;  ///< the same; for an asynchronous run its first steps, including filling
  StepTimes times;
  std::vector<HeldBytes> held;  ///< activations by stage; empty if ranks slept, and for the replay
  Result result;
};

/// Disturbance of a run by other load on the processors.
struct Disturbance {
  /// For each counted step: time inside actions over the CPU time used, or over the intended sleep time; 0 if unknown
  /// (tensor-parallel ranks wait inside their actions).
  std::vector<double> stretch;
  int steps = 0;              ///< number stretched by more than kDisturbed
  double others_share = 0.0;  ///< fraction of the machine's processor time used by other programs
  bool any = false;
};
inline constexpr double kDisturbed = 1.03;
inline constexpr double kBusyMachine = 0.05;

/// Forecasts from each of the two calibrations, before and after the run. If the machine's speed changes between them,
/// neither holds for the run, and the forecast, made from both, is only as accurate as their agreement.
struct CalibrationPair {
  double before_s = 0.0;
  double after_s = 0.0;

  double difference() const { return std::max(before_s, after_s) / std::min(before_s, after_s) - 1.0; }
  bool agrees() const { return difference() <= kTolerance; }
  static constexpr double kTolerance = 0.05;
};

/// A forecast and the measurement of the same run. For an asynchronous schedule, a step is a round of its steady state:
/// from the end of one step's last microbatch to that of the next.
struct RunComparison {
  Forecast job;  ///< forecast for the job's cluster
  TimesFrom times_from = TimesFrom::kCalibration;
  bool slept = false;
  std::string backend;
  std::string conditions;  ///< see MeasuredRun
  std::string schedule;
  RunView forecast;
  RunView replay;  ///< this program simulated with the medians of its own run and instantaneous transfers
  RunView measured;
  std::vector<double> step_seconds;  ///< of the counted steps, including disturbed ones
  int warmup = 0;
  Disturbance disturbance;
  std::optional<CalibrationPair> calibrations;  ///< if the forecast is calibrated
  std::vector<double> losses;
};

/// A figure with a forecast, a measured and a replayed value; the replay has no peak memory of its own.
struct RunTerm {
  std::string name;
  std::string key;
  std::string unit;
  double forecast = 0.0;
  double replay = 0.0;
  double measured = 0.0;

  /// Error of the forecast; nullopt if nothing was measured.
  std::optional<double> error_percent() const;
};
/// The step time comes first.
std::vector<RunTerm> run_terms(const RunComparison& run);

/// Reasons why the run was disturbed or its forecast is worthless, one sentence each.
std::vector<std::string> disturbance_texts(const RunComparison& run);

/// Schema flopcast.run/1 (docs/schema/run-1.schema.json): forecast and measured result as flopcast.result/1, error by
/// term, repetitions, and disturbances.
std::string write_run(const RunComparison& run);
/// The flopcast.measurement/1 of the run with the same content added as "comparison".
std::string with_comparison(const std::string& measurement, const RunComparison& run);
/// The forecast or the measurement as flopcast.result/1.
nlohmann::ordered_json side_json(const RunComparison& run, const RunView& side);

/// Contents of a flopcast.run/1 that pages read in addition to its results.
struct SavedRun {
  struct Side {
    std::optional<SavedTimeline> timeline;  ///< early versions wrote none
    std::vector<HeldBytes> held;            ///< activations by stage; empty if not in the file
  };
  std::string backend;  ///< empty: not in the file
  std::string conditions;
  bool slept = false;
  bool has_held_bytes = false;
  Side forecast;
  Side measured;
  OrderedJsonValue told;  ///< its "warnings", "error", "repetitions" and "times"
};
/// Throws ConfigError that names the invalid field.
SavedRun read_run(const nlohmann::ordered_json& json, const std::string& file);
/// Same, for a run that has not been written to a file.
SavedRun saved_run(const RunComparison& run);
/// The run kept in a flopcast.measurement/1. Throws ConfigError if there is none.
const nlohmann::ordered_json& run_kept_in(const nlohmann::ordered_json& measurement, const std::string& file);

/// Mean loss of every step; NaN where there was none.
struct RunLosses {
  std::string schedule;
  std::vector<double> losses;
};
/// From a measurement written by `flopcast run -o`. Throws ConfigError if it is not one.
RunLosses read_run_losses(std::string_view text, const std::string& file);

}  // namespace flopcast
