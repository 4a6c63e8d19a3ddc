#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/fits.hpp"
#include "calibrate/device/imports.hpp"
#include "model/config/document.hpp"
#include "model/enum_names.hpp"
#include "model/job.hpp"
#include "model/job/device_profile.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// A step of the user's own: the job that ran and the time of a step.
struct UserRun {
  std::string id;
  JsonValue root;  ///< the job file, complete
  Job job;
  double measured_s = 0.0;
  std::string date = {};  ///< YYYY-MM-DD; empty if unknown
};

/// A constant fitted to the runs: its most likely value and the bounds of its 90 % interval, in the unit that its name
/// has in a job, together with the catalogue's value.
struct OwnConstant {
  std::string name;
  std::string unit;
  double catalogue = 0.0;
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
  double narrowed = 0.0;  ///< posterior over prior standard deviation of the logarithm
};

/// A constant that the runs do not determine, which keeps the catalogue's value.
struct UndeterminedConstant {
  std::string name;
  std::string why;
};

struct FittedOwnRun {
  std::string id;
  double measured_s = 0.0;
  double catalogue_s = 0.0;  ///< forecast with the catalogue's constants
  double fitted_s = 0.0;
  bool followed = true;  ///< false: an outlier among the runs, which counts for little
};

/// The run that would narrow the forecasts of all candidate layouts most.
struct NextRun {
  JsonValue job;
  std::string layout;  ///< "tp 4, pp 2, …": difference from the run that it was derived from
  double half_width = 0.0;
  std::string why;
};

struct UserFit {
  std::vector<OwnConstant> constants;
  std::vector<UndeterminedConstant> undetermined;
  std::vector<FittedOwnRun> runs;
  std::optional<NextRun> next;
  DeviceProfile profile;
};

/// Bayesian linear regression in logarithms, linearised again around each new solution (Gauss-Newton, at most six
/// rounds):
///
///   ln(measured / forecast) = J θ + c e,   θ ~ N(0, diag(c s)²),   e ~ Student t of scale ω
///
/// θ: ln(fitted / catalogue) of the constants of sim/forecast/interval.hpp, s their spreads; c: the distance of
/// IntervalModel (experts, slow hosts …); ω: the scatter of steps from one source, initially that of the published
/// sources, then re-estimated from the residuals, among which the initial value counts as eight. A run far from all
/// others weighs less (t with four degrees of freedom). A constant counts as determined if its standard deviation falls
/// below nine tenths of the prior's; the others keep the catalogue's value, and their spread remains in every interval.
/// The next run is the one layout, among those near the user's runs (tp, pp, microbatch or nodes doubled or halved)
/// that fit the memory, whose measurement reduces the variance of the forecasts of all of them most. Not modelled: the
/// interval of a run's steps (one figure per run), and constants of a single layout or model. Throws ConfigError for
/// runs of several devices; NegativeAnswer if no constant is determined.
UserFit fit_user_runs(const std::vector<UserRun>& runs, const ReadFile& read_file);

/// Runs of the same job, on the same date or not, whose steps differ by more than a tenth: one sentence per pair of the
/// first run and a later one. No constant can explain both.
std::vector<std::string> contradictions_of(const std::vector<UserRun>& runs);

/// Accuracy of the forecasts of left-out runs as a function of the number of fitted runs: means over several random
/// choices of them.
struct LearningPoint {
  int runs = 0;
  double catalogue_mape = 0.0;
  double mape = 0.0;
  double median = 0.0;      ///< median of the absolute errors
  double inside = 0.0;      ///< fraction of left-out runs inside their interval
  double half_width = 0.0;  ///< mean
};
/// Selection of the runs to fit: at random, or one at random and then repeatedly the available run that reduces the
/// variance of all forecasts most (fit_user_runs' next run).
enum class RunChoice { kRandom, kAdvised };
template <>
struct EnumNames<RunChoice> {
  static constexpr std::string_view kNames[] = {"random", "advised"};
};
/// One point for each of `counts`, which must leave runs out (ConfigError). Deterministic on every machine.
std::vector<LearningPoint> learning_curve(const std::vector<UserRun>& runs, const std::vector<int>& counts,
                                          RunChoice choice, int repetitions, const ReadFile& read_file);

/// Schema flopcast.fit/1.
std::string write_user_fit(const UserFit& fit);

/// The counted steps of a log, in log order.
struct StepsOfLog {
  std::vector<double> seconds;
  double median_s = 0.0;
  double p5_s = 0.0;
  double p95_s = 0.0;
};

/// Steps of a training log with the job's global batch size, without warm-up and skipped updates. Throws ConfigError
/// (field `flag`) if there are none, or if the log's ranks are not the job's devices.
StepsOfLog steps_of_log(const TrainingLog& log, const std::string& file, const std::string& flag, const Job& job);

/// Error of a forecast, predicted / measured - 1, on a date (YYYY-MM-DD).
struct DatedError {
  std::string date;
  double error = 0.0;
};
/// A change in the forecast error from one day on.
struct Drift {
  std::string since;
  int runs_before = 0;
  int runs_since = 0;
  double error_before = 0.0;  ///< means
  double error_since = 0.0;
};
/// The day that separates the errors best: largest t = |difference of means| / (s √(1/n + 1/m)), s pooled, with at
/// least three runs on either side. Absent unless some day separates them by 1.5 % and t > 4, which among a dozen
/// candidate days occurs by chance less than once in a hundred times.
std::optional<Drift> drift_of(std::vector<DatedError> errors);
/// "since 2026-05-03 forecasts are 6.1 % low; before 0.3 % high (9 and 12 runs)"
std::string drift_text(const Drift& drift);

/// Rows of a file of user runs: a list of {id, job, measured}, an object with such "rows", or a single row. Throws
/// ConfigError with the place in `file`.
std::vector<nlohmann::json> user_rows(const nlohmann::json& json, const std::string& file);

}  // namespace flopcast
