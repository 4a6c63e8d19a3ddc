#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/program/step_times.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

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

/// Mean loss of every step. An asynchronous run is cut into steps of `microbatches`, or slices of them.
std::vector<double> step_losses(const MeasuredRun& run, int microbatches);

/// Counted steps of a run that was asked for `steps`, of which some warm up, and of an asynchronous schedule one
/// drains.
int counted_steps(int steps, int warmup, bool asynchronous);

/// `as_run` has the bytes and the memory of a forecast that is calibrated: see memory_as_run().
RunComparison compare_run(Forecast job, const Result& as_run, const MeasuredRun& run, TimesFrom times_from);

}  // namespace flopcast
