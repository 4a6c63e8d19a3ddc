#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalogue.hpp"
#include "model/job.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

/// Properties of a job that determine the accuracy of its forecast: facts of hardware and software, never a model's
/// name.
struct ForecastFacts {
  std::string device;  ///< name in the catalogue
  GpuGeneration generation = GpuGeneration::kAmpere;
  std::string stack;
  Precision precision = Precision::kBf16;
  bool experts = false;
  bool slow_launches = false;  ///< the host takes longer to launch a kernel than most kernels take to run
  double exposed = 0.0;        ///< with several nodes: fraction of the step that waits for communication
  double stalls_s = 0.0;       ///< total time by which hand-overs of a pipeline may stall
  std::string unlike;          ///< a property that no published run has, such as "nodes that differ"
};
ForecastFacts facts_of(const Job& job, double exposed_share = 0.0);

/// Errors of the forecasts of measured training steps from one source.
struct SourceErrors {
  int source = 0;  ///< unique number of the source
  ForecastFacts facts;
  std::vector<double> errors;  ///< ln(measured / forecast)
};

/// sim/forecast/source_errors.json, written by flopcast validate --source-errors.
const std::vector<SourceErrors>& shipped_source_errors();
const std::vector<EmbeddedFile>& embedded_source_errors();

/// Interval in which measured steps of a new source are expected; docs/uncertainty.md.
///
///   ln(measured / forecast) = c · (μ + u + e), (u, e) jointly Student t with ν = 3, scales τ (one u per source), ω
///   nine of ten steps lie in forecast · exp(c · (μ ± t.95(ν) √(τ² + ω²)))
///
/// μ, τ and ω are maximum-likelihood estimates over the sources; a source counts as at most six rows. c is known before
/// the run and grows with the distance from measured runs: 2 with experts; 1 + s if a fraction s of the step waits for
/// the network; 2 if launches are slow; 2 on a generation of devices with fewer than two sources; 2 for a property that
/// no published run has. The upper end assumes that all of a pipeline's hand-overs between nodes stall, if those of its
/// software do (Stack::hand_over_stall): (m · v + p - 1) times the neighbours on other nodes of the rank with most.
/// Left out: effects that no published run can show, such as failures, stragglers, and a network shared with other
/// jobs.
class IntervalModel {
 public:
  /// Excludes the errors of `without_source`, if given.
  explicit IntervalModel(std::vector<SourceErrors> known, std::optional<int> without_source = std::nullopt);

  /// nullopt if fewer than three sources are known.
  std::optional<StepTimeInterval> interval(const ForecastFacts& facts, double time_s) const;

  double centre() const { return centre_; }
  double between_sources() const { return between_; }
  double within_source() const { return within_; }
  /// Distance of the facts from measured runs: c.
  double distance(const ForecastFacts& facts) const { return factor(facts, std::nullopt, nullptr); }

 private:
  double factor(const ForecastFacts& facts, std::optional<int> source, std::vector<std::string>* reasons) const;
  void fit();

  std::vector<SourceErrors> known_;
  int sources_ = 0;
  double centre_ = 0.0;
  double between_ = 0.0;
  double within_ = 0.0;
};

/// Model of the shipped errors.
const IntervalModel& shipped_interval_model();

/// A constant of device, links or software that can be fitted to your own training steps.
struct RunConstant {
  std::string_view name;  ///< its path in a job, without "cluster." or "training."
  std::string_view unit;  ///< of its value
  double spread = 0.0;    ///< of ln(own / catalogue) before any measurement, one standard deviation; chosen
  bool is_share = false;  ///< at most 1
  double (*value)(const Job& job) = nullptr;
  void (*scale)(Job& job, double factor) = nullptr;
};
/// Fractions of peak for products (all precisions together) and fused attention (both passes together), of memory
/// bandwidth and of link rates; launch time of a kernel on the device, and host time of kernels and collectives.
const std::vector<RunConstant>& run_constants();
/// The constant of that name; null if there is none.
const RunConstant* find_run_constant(std::string_view name);

/// The step time of a job, in seconds.
using StepTimeOf = std::function<double(const Job& job)>;

/// d ln(step time) / d ln(constant) for each constant, from a step of 5 % towards feasible values; `time_s` is the
/// job's.
std::vector<double> run_sensitivities(const Job& job, const std::vector<std::string>& constants, double time_s,
                                      const StepTimeOf& time_of);

/// Kind of a run, which determines whether forecasts of others can rely on it: "bf16", "fp8, experts".
std::string kind_of_run(const Job& job);
/// Name of the stack without its release, as in a profile.
std::string stack_of_run(const Job& job);

/// Interval for a step of a job whose constants were fitted to your own steps (RunFit):
///
///   low, high = forecast · exp(± t.95(freedom) √(f' S f + (c · noise)² + (c · τ)² if no similar run was measured))
///
/// f: run_sensitivities; S: the constants' covariance; c: the distance of IntervalModel; τ: the deviation between
/// sources, which counts if the runs used another stack, or none of them had this precision, or experts.
StepTimeInterval interval_from_user_runs(const Job& job, const RunFit& fit, const std::vector<double>& sensitivities,
                                         double exposed_share, double time_s);

/// The 95th percentile of Student's t, by the Cornish-Fisher expansion about the normal percentile (1937); within 0.3 %
/// from three degrees of freedom on.
double student_95(double freedom);

}  // namespace flopcast
