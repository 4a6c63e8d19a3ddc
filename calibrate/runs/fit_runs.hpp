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

/// A step of one's own: what was run, and how long a step took.
struct OwnRun {
  std::string id;
  JsonValue root;  ///< the job file, complete
  Job job;
  double measured_s = 0.0;
  std::string date = {};  ///< YYYY-MM-DD; empty where it is not told
};

/// A constant that the runs tell: most likely value and the ends of its 90 % interval, in the unit its name has in a
/// job, beside the catalogue's.
struct OwnConstant {
  std::string name;
  std::string unit;
  double catalogue = 0.0;
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
  double narrowed = 0.0;  ///< standard deviation after the runs over that before them, of the logarithm
};

/// A constant that stays the catalogue's.
struct UntoldConstant {
  std::string name;
  std::string why;
};

struct FittedOwnRun {
  std::string id;
  double measured_s = 0.0;
  double catalogue_s = 0.0;  ///< forecast before the fit
  double fitted_s = 0.0;
  bool followed = true;  ///< false: so far from what the others say that it counts for little
};

/// The run that would narrow the forecasts of all layouts looked at most.
struct NextRun {
  JsonValue job;
  std::string layout;  ///< "tp 4, pp 2, …", what differs from the run it was made from
  double half_width = 0.0;
  std::string why;
};

struct OwnFit {
  std::vector<OwnConstant> constants;
  std::vector<UntoldConstant> untold;
  std::vector<FittedOwnRun> runs;
  std::optional<NextRun> next;
  DeviceProfile profile;
};

/// Bayesian linear regression in logarithms, linearised again where it leads (Gauss-Newton, at most six rounds):
///
///   ln(measured / forecast) = J θ + c e,   θ ~ N(0, diag(c s)²),   e ~ Student t of scale ω
///
/// θ: ln(own / catalogue) of the constants of sim/forecast/interval.hpp, s their spreads; c: the distance of
/// IntervalModel (experts, slow hosts …); ω: what steps of one source differ by, at first that of the published
/// sources, then together with the residuals, as eight more of them. A run far from all others weighs less (t of four
/// degrees of freedom). A constant is told where its standard deviation falls below nine tenths of what it was; the
/// others stay the catalogue's, with their spread in every interval.
/// The next run is the one layout, of those near the runs' own (tp, pp, microbatch or nodes doubled or halved, another
/// ZeRO stage) that fit the memory, whose measurement takes the most variance off the forecasts of all of them.
/// Left out: what a run's interval of steps says (one figure a run), and constants of one layout or model.
/// Throws ConfigError for runs of several devices; NegativeAnswer where no constant is told.
OwnFit fit_own_runs(const std::vector<OwnRun>& runs, const ReadFile& read_file);

/// Runs of one job, a date apart or not, whose steps differ by more than a tenth: a sentence for each pair, of the
/// first with each later one. No constant can follow both.
std::vector<std::string> contradictions_of(const std::vector<OwnRun>& runs);

/// How forecasts of runs that were left out improve with the number of runs that were fitted to: the means over
/// several choices of them.
struct LearningPoint {
  int runs = 0;
  double catalogue_mape = 0.0;
  double mape = 0.0;
  double median = 0.0;      ///< of the absolute errors
  double inside = 0.0;      ///< share of the runs left out that lie in their interval
  double half_width = 0.0;  ///< mean
};
/// How the runs to be fitted to are chosen: at random, or one at random and then the one, of all that there are, that
/// takes the most variance off the forecasts of all (fit_own_runs' next run).
enum class RunChoice { kRandom, kAdvised };
template <>
struct EnumNames<RunChoice> {
  static constexpr std::string_view kNames[] = {"random", "advised"};
};
/// For each of `counts`, which must leave runs out (ConfigError). The same on every machine.
std::vector<LearningPoint> learning_curve(const std::vector<OwnRun>& runs, const std::vector<int>& counts,
                                          RunChoice choice, int repetitions, const ReadFile& read_file);

/// Schema flopcast.fit/1.
std::string write_own_fit(const OwnFit& fit);

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
