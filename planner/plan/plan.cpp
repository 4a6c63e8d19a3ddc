#include "planner/plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr double kSecondsPerDay = 86'400.0;
constexpr double kSecondsPerHour = 3'600.0;

double steps_of(const Job& job) {
  const double tokens_per_step = static_cast<double>(job.layout.global_batch_size) * job.training.sequence_length;
  return std::ceil(*job.training.tokens / tokens_per_step);
}

double training_share(const Job& job, const std::optional<Interruptions>& interruptions, int devices) {
  if (!job.training.tokens || !interruptions) return 1.0;
  const Goodput goodput = goodput_of(*interruptions, devices);
  return goodput.finishes() ? goodput.fraction : 1.0;
}

struct StepLimit {
  double seconds = std::numeric_limits<double>::infinity();
  std::string reason;
};

StepLimit limit_of(const Job& job, const PlanOptions& options) {
  StepLimit limit;
  const int devices = job.cluster.devices();
  if (job.training.tokens && options.interruptions && !goodput_of(*options.interruptions, devices).finishes()) {
    return {0.0, kNeverFinishes};
  }
  const double share = training_share(job, options.interruptions, devices);
  if (options.deadline_s) {
    limit = {*options.deadline_s * share / steps_of(job), kMissesDeadline};
  }
  if (options.budget_usd) {
    FLOPCAST_CHECK(job.training.price_per_gpu_hour.has_value());
    const double gpu_seconds = *options.budget_usd / *job.training.price_per_gpu_hour * kSecondsPerHour;
    const double seconds = gpu_seconds / devices * share / steps_of(job);
    if (seconds < limit.seconds) limit = {seconds, kExceedsBudget};
  }
  return limit;
}

}  // namespace

Job on_nodes(const Job& job, int nodes) {
  Job sized = job;
  if (nodes == job.cluster.nodes) return sized;
  FLOPCAST_CHECK(!job.cluster.uneven());
  sized.cluster.nodes = nodes;
  return sized;
}

SearchResult plan(const Job& job, const SearchSpace& space, const PlanOptions& options,
                  const ParallelFor& parallel_for) {
  LayoutSearch search(space, options.search, parallel_for);
  for (const int nodes : options.nodes) {
    const Job sized = on_nodes(job, nodes);
    const StepLimit limit = limit_of(sized, options);
    const double share = training_share(sized, options.interruptions, sized.cluster.devices());
    search.explore(sized, limit.seconds, limit.reason, share);
    if (options.search.objective == Objective::kGpus && search.found()) break;
  }
  return search.result();
}

std::optional<RunLength> run_length(const Job& job, double time_s, int devices,
                                    const std::optional<Interruptions>& interruptions) {
  if (!job.training.tokens) return std::nullopt;
  RunLength length;
  length.steps = steps_of(job);
  if (interruptions) length.goodput = goodput_of(*interruptions, devices);
  const double seconds = length.steps * time_s / (length.goodput ? length.goodput->fraction : 1.0);
  length.days = seconds / kSecondsPerDay;
  length.gpu_hours = seconds / kSecondsPerHour * devices;
  if (job.training.price_per_gpu_hour) length.cost_usd = length.gpu_hours * *job.training.price_per_gpu_hour;
  return length;
}

}  // namespace flopcast
