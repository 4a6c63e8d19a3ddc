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

/// Where the times of a run's forecast come from.
enum class TimesFrom {
  kCalibration,  ///< measured in the minute before the run, on the same ranks
  kJob,          ///< what the job's cluster is priced at
};

/// One of the ways to know how a step goes.
struct RunView {
  Timeline step;   ///< the one with the median time
  Timeline drawn;  ///< the same; of an asynchronous run its first steps, filling included
  StepTimes times;
  std::vector<HeldBytes> held;  ///< activations by stage; empty where ranks slept, and of the replay
  Result result;
};

/// Whether something else kept the processors busy.
struct Disturbance {
  /// By counted step: time inside actions over the CPU time used, or over the time they should have slept; 0 where it
  /// is not known (tensor-parallel ranks wait inside their actions).
  std::vector<double> stretch;
  int steps = 0;              ///< that are stretched by more than kDisturbed
  double others_share = 0.0;  ///< of the machine's processors' time, used by other programs
  bool any = false;
};
inline constexpr double kDisturbed = 1.03;
inline constexpr double kBusyMachine = 0.05;

/// What each of the two calibrations, before and after the run, would forecast. A machine that changes its speed
/// between them has neither for the run, and the forecast, made of both, is no better than they agree.
struct CalibrationPair {
  double before_s = 0.0;
  double after_s = 0.0;

  double difference() const { return std::max(before_s, after_s) / std::min(before_s, after_s) - 1.0; }
  bool agrees() const { return difference() <= kTolerance; }
  static constexpr double kTolerance = 0.05;
};

/// A forecast beside what was measured. A step of an asynchronous schedule is a round of its steady state: from the end
/// of one step's last microbatch to that of the next.
struct RunComparison {
  Forecast job;  ///< what the job's cluster is forecast to do
  TimesFrom times_from = TimesFrom::kCalibration;
  bool slept = false;
  std::string backend;
  std::string conditions;  ///< see MeasuredRun
  std::string schedule;
  RunView forecast;
  RunView replay;  ///< this program simulated with the medians of its own run, transfers taking no time
  RunView measured;
  std::vector<double> step_seconds;  ///< of the counted steps, disturbed ones too
  int warmup = 0;
  Disturbance disturbance;
  std::optional<CalibrationPair> calibrations;  ///< where the forecast is calibrated
  std::vector<double> losses;
};

/// A figure that forecast, measurement and replay have; of peak memory the replay says nothing of its own.
struct RunTerm {
  std::string name;
  std::string key;
  std::string unit;
  double forecast = 0.0;
  double replay = 0.0;
  double measured = 0.0;

  /// Of the forecast; nothing where nothing was measured.
  std::optional<double> error_percent() const;
};
/// The step's time first.
std::vector<RunTerm> run_terms(const RunComparison& run);

/// What disturbed the run, or makes its forecast worthless, a sentence each.
std::vector<std::string> disturbance_texts(const RunComparison& run);

/// Schema flopcast.run/1 (docs/schema/run-1.schema.json): forecast and measured as flopcast.result/1, error by term,
/// repetitions, and what disturbed them.
std::string write_run(const RunComparison& run);
/// A flopcast.measurement/1 with the same beside its run, as "comparison".
std::string with_comparison(const std::string& measurement, const RunComparison& run);
/// Of its forecast or of what was measured: flopcast.result/1.
nlohmann::ordered_json side_json(const RunComparison& run, const RunView& side);

/// What pages read of a flopcast.run/1 beside its results.
struct SavedRun {
  struct Side {
    std::optional<SavedTimeline> timeline;  ///< early versions wrote none
    std::vector<HeldBytes> held;            ///< activations by stage; empty where the run does not tell them
  };
  std::string backend;  ///< empty: not told
  std::string conditions;
  bool slept = false;
  bool tells_held = false;
  Side forecast;
  Side measured;
  OrderedJsonValue told;  ///< its own "warnings", "error", "repetitions" and "times"
};
/// Throws ConfigError with the field that is none.
SavedRun read_run(const nlohmann::ordered_json& json, const std::string& file);
/// The same of a run that is no file yet.
SavedRun saved_run(const RunComparison& run);
/// The one that a flopcast.measurement/1 keeps. Throws ConfigError where it keeps none.
const nlohmann::ordered_json& run_kept_in(const nlohmann::ordered_json& measurement, const std::string& file);

/// Mean loss of every step, not a number where there was none.
struct RunLosses {
  std::string schedule;
  std::vector<double> losses;
};
/// From a measurement that `flopcast run -o` kept. Throws ConfigError when it is none.
RunLosses read_run_losses(std::string_view text, const std::string& file);

}  // namespace flopcast
