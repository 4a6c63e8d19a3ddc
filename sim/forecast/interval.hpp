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

/// What of a job decides how far off its forecast may be: facts of hardware and software, never a model's name.
struct ForecastFacts {
  std::string device;  ///< the catalogue's
  GpuGeneration generation = GpuGeneration::kAmpere;
  std::string stack;
  Precision precision = Precision::kBf16;
  bool experts = false;
  bool slow_launches = false;  ///< the host takes longer to launch a kernel than most kernels take
  double exposed = 0.0;        ///< of several nodes: the share of the step that waits for communication
  double stalls_s = 0.0;       ///< what hand-overs of a pipeline may stall, in all
  std::string unlike;          ///< what no published run has: "nodes that differ"
};
ForecastFacts facts_of(const Job& job, double exposed_share = 0.0);

/// Measured training steps of one source beside their forecasts.
struct SourceErrors {
  int source = 0;  ///< a number for each
  ForecastFacts facts;
  std::vector<double> errors;  ///< ln(measured / forecast)
};

/// sim/forecast/source_errors.json, written by flopcast validate --source-errors.
const std::vector<SourceErrors>& shipped_source_errors();
const std::vector<EmbeddedFile>& embedded_source_errors();

/// Where measured steps of a source that nobody has seen are expected; docs/uncertainty.md.
///
///   ln(measured / forecast) = c · (μ + u + e), (u, e) jointly Student t with ν = 3, of scales τ (one u a source) and ω
///   nine of ten steps lie in forecast · exp(c · (μ ± t.95(ν) √(τ² + ω²)))
///
/// μ, τ, ω by greatest likelihood over the sources; rows of a source beyond six tell no more than six. c is known
/// before the run and grows with the distance from what was measured: 2 with experts; 1 + s where s of the step waits
/// for the network; 2 where launches are slow; 2 on a generation of devices that fewer than two sources ran; 2 for what
/// no published run has. The upper end has all of a pipeline's hand-overs between nodes stall, where its software's do
/// (Stack::hand_over_stall): (m · v + p - 1) times the neighbours on other nodes of the rank with most. Left out: what
/// no published run can show, such as failures, stragglers, and a network that others use.
class IntervalModel {
 public:
  /// Without the errors of one source, where that is given.
  explicit IntervalModel(std::vector<SourceErrors> known, std::optional<int> without_source = std::nullopt);

  /// Nothing where fewer than three sources are known.
  std::optional<StepTimeInterval> interval(const ForecastFacts& facts, double time_s) const;

  double centre() const { return centre_; }
  double between_sources() const { return between_; }
  double within_source() const { return within_; }
  /// How far the facts are from what was measured: c.
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

/// Of the shipped errors.
const IntervalModel& shipped_interval_model();

/// A constant of device, links or software that training steps of one's own can tell.
struct RunConstant {
  std::string_view name;  ///< its path in a job, without "cluster." or "training."
  std::string_view unit;  ///< of its value
  double spread = 0.0;    ///< of ln(own / catalogue) before anything was measured, one standard deviation; chosen
  bool is_share = false;  ///< at most 1
  double (*value)(const Job& job) = nullptr;
  void (*scale)(Job& job, double factor) = nullptr;
};
/// Shares of the peak of products (of every precision alike) and of fused attention (both passes alike), of the memory
/// bandwidth and of the links' rates; what launching a kernel takes on the device, and what kernels and collectives
/// take on the host.
const std::vector<RunConstant>& run_constants();
/// The one of that name, null where there is none.
const RunConstant* find_run_constant(std::string_view name);

/// The step time of a job, in seconds.
using StepTimeOf = std::function<double(const Job& job)>;

/// d ln(step time) / d ln(constant) of each, by a step of 5 % towards what a constant may be; `time_s` is the job's.
std::vector<double> run_sensitivities(const Job& job, const std::vector<std::string>& constants, double time_s,
                                      const StepTimeOf& time_of);

/// What a run was, as far as forecasts of others can lean on it: "bf16", "fp8, experts".
std::string kind_of_run(const Job& job);
/// Without its release, as a profile names it.
std::string stack_of_run(const Job& job);

/// Where a step is expected by a job whose constants were fitted to steps of one's own (RunFit):
///
///   low, high = forecast · exp(± t.95(freedom) √(f' S f + (c · noise)² + (c · τ)² where nothing alike was measured))
///
/// f: run_sensitivities; S: the constants' covariance; c: the distance of IntervalModel; τ: what sources differ by,
/// counted where the runs had another stack, or none of them this precision, or experts.
StepTimeInterval interval_of_own_runs(const Job& job, const RunFit& fit, const std::vector<double>& sensitivities,
                                      double exposed_share, double time_s);

/// The 95th percentile of Student's t, by the expansion about the normal one (Cornish, Fisher 1937); within 0.3 % from
/// three degrees of freedom on.
double student_95(double freedom);

}  // namespace flopcast
