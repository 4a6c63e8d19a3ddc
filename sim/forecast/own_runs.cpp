#include "sim/forecast/interval.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

void scale_share(double& share, double factor) {
  share = std::min(1.0, share * factor);
}

void scale_products(Job& job, double factor) {
  Device& device = job.cluster.device;
  scale_share(device.gemm_efficiency, factor);
  for (double& share : device.gemm_efficiency_by_precision) scale_share(share, factor);
  scale_share(device.gemm_efficiency_fp4, factor);
}

void scale_attention(Job& job, double factor) {
  scale_share(job.cluster.device.flash_forward_efficiency, factor);
  scale_share(job.cluster.device.flash_backward_efficiency, factor);
}

double gemm_of(const Job& job) {
  const Device& device = job.cluster.device;
  const bool in_4_bits = job.training.fp8_recipe == Fp8Recipe::kNvfp4 && device.peak_fp4 > FlopsPerSecond(0.0);
  if (in_4_bits && device.gemm_efficiency_fp4 > 0.0) return device.gemm_efficiency_fp4;
  return device.gemm_efficiency_of(job.training.precision);
}

}  // namespace

const std::vector<RunConstant>& run_constants() {
  // Spreads: products so that sources differ by as much as they do (IntervalModel's between_sources); the others by
  // what published fits of one device, fabric or software disagree among each other.
  static const std::vector<RunConstant> constants = {
      {"device.gemm_efficiency", "", 0.04, true, &gemm_of, &scale_products},
      {"device.memory_efficiency", "", 0.1, true, [](const Job& job) { return job.cluster.device.memory_efficiency; },
       [](Job& job, double factor) { scale_share(job.cluster.device.memory_efficiency, factor); }},
      {"device.flash_efficiency", "", 0.1, true,
       [](const Job& job) { return job.cluster.device.flash_forward_efficiency; }, &scale_attention},
      {"device.kernel_launch", "us", 0.2, false,
       [](const Job& job) { return job.cluster.device.kernel_launch.value() * 1e6; },
       [](Job& job, double factor) { job.cluster.device.kernel_launch *= factor; }},
      {"intra_efficiency", "", 0.15, true, [](const Job& job) { return job.cluster.intra_efficiency; },
       [](Job& job, double factor) { scale_share(job.cluster.intra_efficiency, factor); }},
      {"nic_efficiency", "", 0.2, true, [](const Job& job) { return job.cluster.nic_efficiency; },
       [](Job& job, double factor) { scale_share(job.cluster.nic_efficiency, factor); }},
      {"stack.host_time_per_kernel", "us", 0.2, false,
       [](const Job& job) { return job.training.stack.host_time_per_kernel.value() * 1e6; },
       [](Job& job, double factor) { job.training.stack.host_time_per_kernel *= factor; }},
      {"stack.host_time_per_collective", "us", 0.2, false,
       [](const Job& job) { return job.training.stack.host_time_per_collective.value() * 1e6; },
       [](Job& job, double factor) { job.training.stack.host_time_per_collective *= factor; }},
  };
  return constants;
}

const RunConstant* find_run_constant(std::string_view name) {
  for (const RunConstant& constant : run_constants()) {
    if (constant.name == name) return &constant;
  }
  return nullptr;
}

std::vector<double> run_sensitivities(const Job& job, const std::vector<std::string>& constants, double time_s,
                                      const StepTimeOf& time_of) {
  constexpr double kStep = 0.05;
  std::vector<double> all;
  for (const std::string& name : constants) {
    const RunConstant* constant = find_run_constant(name);
    if (constant == nullptr || !(constant->value(job) > 0.0)) {
      all.push_back(0.0);
      continue;
    }
    // A share has room below it.
    const double step = constant->is_share ? -kStep : kStep;
    Job moved = job;
    moved.training.fitted.reset();
    constant->scale(moved, std::exp(step));
    all.push_back(std::log(time_of(moved) / time_s) / step);
  }
  return all;
}

std::string kind_of_run(const Job& job) {
  return fmt::format("{}{}", name_of(job.training.precision), job.model.experts ? ", experts" : "");
}

std::string stack_of_run(const Job& job) {
  return job.training.stack.based_on;
}

double student_95(double freedom) {
  constexpr double kNormal = 1.644854;
  const double z = kNormal;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

StepTimeInterval interval_of_own_runs(const Job& job, const RunFit& fit, const std::vector<double>& sensitivities,
                                      double exposed_share, double time_s) {
  constexpr double kLevel = 0.9;
  const std::size_t count = fit.constants.size();
  FLOPCAST_CHECK(sensitivities.size() == count && fit.covariance.size() == count * count);
  const ForecastFacts facts = facts_of(job, exposed_share);
  const IntervalModel& shipped = shipped_interval_model();
  const double distance = shipped.distance(facts);
  double variance = 0.0;
  std::string least_sure;
  double largest = 0.0;
  for (std::size_t row = 0; row < count; ++row) {
    double with_others = 0.0;
    for (std::size_t column = 0; column < count; ++column) {
      with_others += sensitivities[row] * fit.covariance[row * count + column] * sensitivities[column];
    }
    variance += with_others;
    if (with_others <= largest) continue;
    largest = with_others;
    least_sure = fit.constants[row];
  }
  variance = std::max(0.0, variance);
  const double constants = std::sqrt(variance);
  variance += distance * distance * fit.noise * fit.noise;
  std::vector<std::string> unlike;
  if (fit.stack != stack_of_run(job)) unlike.push_back(fmt::format("of stack {}", fit.stack));
  const std::string kind = kind_of_run(job);
  if (std::find(fit.kinds.begin(), fit.kinds.end(), kind) == fit.kinds.end()) {
    unlike.push_back(fmt::format("in {}", fmt::join(fit.kinds, " or ")));
  }
  if (!unlike.empty()) variance += distance * distance * shipped.between_sources() * shipped.between_sources();
  const double reach = student_95(fit.freedom) * std::sqrt(variance);

  StepTimeInterval found;
  found.level = kLevel;
  found.factor = distance;
  found.low_s = time_s * std::exp(-reach);
  found.high_s = time_s * std::exp(reach);
  found.half_width = (found.high_s - found.low_s) / (2.0 * time_s);
  found.stalls_s = facts.stalls_s;
  found.high_s += found.stalls_s;
  found.sources = 1;
  found.evidence = fmt::format("{} step{} of your own{}", fit.runs, fit.runs == 1 ? "" : "s",
                               unlike.empty() ? "" : fmt::format(", {}", fmt::join(unlike, ", ")));
  if (!least_sure.empty()) {
    found.evidence += fmt::format("; ± {:.1f} % from constants, most of it from {}", 1e2 * constants, least_sure);
  }
  return found;
}

}  // namespace flopcast
