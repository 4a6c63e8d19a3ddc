#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/job.hpp"
#include "sim/forecast/interval.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

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
