#include "planner/plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

constexpr double kSecondsPerDay = 86'400.0;

constexpr double kSecondsPerHour = 3'600.0;

double steps_of(const Job& job) {
  const double tokens_per_step =
      static_cast<double>(sequences_of(job.training, job.layout.global_batch_size)) * job.training.sequence_length;
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

SizedPlan::SizedPlan(const Job& job, const SearchSpace& space, const PlanOptions& options, ParallelFor parallel_for)
    : job_(job), space_(space), options_(options), parallel_for_(std::move(parallel_for)), sizes_(options.nodes) {
  if (sizes_.size() < 2 || options_.search.objective == Objective::kGpus) return;
  largest_ = search_size(sizes_.back(), nullptr);
  sizes_.pop_back();
}

SearchResult SizedPlan::search_size(int nodes, const SearchResult* largest) const {
  Job sized = on_nodes(job_, nodes);
  const StepLimit limit = limit_of(sized, options_);
  LayoutSearch search(space_, options_.search, parallel_for_);
  if (largest != nullptr) search.rule_out_by(*largest);
  const double share = training_share(sized, options_.interruptions, sized.cluster.devices());
  if (space_.placements.empty()) search.explore(sized, limit.seconds, limit.reason, share);
  for (const auto& placement : space_.placements) {
    sized.layout.placement = placement;
    search.explore(sized, limit.seconds, limit.reason, share);
  }
  return search.result();
}

SearchResult SizedPlan::search(std::size_t part) const {
  return search_size(sizes_[part], largest_ ? &*largest_ : nullptr);
}

bool SizedPlan::ends_with(const SearchResult& part) const {
  return options_.search.objective == Objective::kGpus && !part.ranked.empty();
}

SearchResult SizedPlan::merge(const std::vector<SearchResult>& parts) const {
  std::vector<SearchResult> all = parts;
  if (largest_) all.push_back(*largest_);
  return merge_results(all, options_.search);
}

SearchResult plan(const Job& job, const SearchSpace& space, const PlanOptions& options,
                  const ParallelFor& parallel_for) {
  const SizedPlan sized(job, space, options, parallel_for);
  std::vector<SearchResult> parts;
  for (std::size_t part = 0; part < sized.parts(); ++part) {
    parts.push_back(sized.search(part));
    if (sized.ends_with(parts.back())) break;
  }
  return sized.merge(parts);
}

std::optional<Diagnostic> endless_run(const Job& job, const PlanOptions& options) {
  if (!job.training.tokens || !options.interruptions) return std::nullopt;
  const Interruptions& interruptions = *options.interruptions;
  const int devices = on_nodes(job, options.nodes.front()).cluster.devices();
  const Goodput goodput = goodput_of(interruptions, devices);
  if (goodput.finishes()) return std::nullopt;
  return Diagnostic{
      "training.tokens",
      fmt::format("the run never finishes: a failure every {} on {} GPUs, {} per checkpoint and {} per "
                  "restart leave less than 1 % of the time to train",
                  time_in_days(interruptions.gpu_mtbf_s / devices), devices, time_in_days(interruptions.checkpoint_s),
                  time_in_days(interruptions.restart_s)),
      "",
      fmt::format("--mtbf is the mean time between failures of one GPU; for the whole cluster it is divided by {}",
                  devices)};
}

namespace {

void merge_equal_layouts(std::size_t wanted, std::vector<PlannedLayout>& ranked) {
  constexpr double kEqual = 1e-9;
  const auto is_close = [](double a, double b, double share) { return std::abs(a - b) <= share * std::abs(a); };
  std::vector<PlannedLayout> kept;
  for (PlannedLayout& one : ranked) {
    const auto as_fast = std::find_if(kept.begin(), kept.end(), [&](const PlannedLayout& other) {
      return other.devices == one.devices && is_close(other.time_s, one.time_s, kEqual);
    });
    if (as_fast == kept.end()) {
      kept.push_back(std::move(one));
    } else if (one.memory_share < as_fast->memory_share * (1.0 - kEqual)) {
      *as_fast = std::move(one);
    }
  }
  const auto complexity = [](const PlannedLayout& one) {
    return std::tuple(!one.layout.stage_layers.empty(), one.layout.vpp.value_or(1), one.layout.cp, one.layout.pp);
  };
  constexpr double kNoise = 0.002;
  auto simplest = kept.begin();
  for (auto one = kept.begin(); one != kept.end(); ++one) {
    const bool alike = one->devices == kept.front().devices && one->time_s <= kept.front().time_s * (1.0 + kNoise);
    if (alike && complexity(*one) < complexity(*simplest)) simplest = one;
  }
  if (simplest != kept.end()) std::rotate(kept.begin(), simplest, simplest + 1);
  if (kept.size() > wanted) kept.resize(wanted);
  ranked = std::move(kept);
}

}  // namespace

std::optional<SearchResult> search_with_room(PlanOptions& options, std::optional<double> memory_limit,
                                             const Search& search, std::vector<std::string>& notes) {
  const int wanted = options.search.ranked;
  constexpr int kEquals = 3;  // equally fast layouts that may be merged into one row
  options.search.ranked = wanted * kEquals;
  options.search.memory_limit = memory_limit.value_or(kRoomyMemory);
  std::optional<SearchResult> found = search(options);
  if (found && found->ranked.empty() && !memory_limit) {
    options.search.memory_limit = 1.0;
    found = search(options);
    if (found && !found->ranked.empty())
      notes.emplace_back("no layout leaves 5 % of the memory free: the layouts shown may run out of memory");
  }
  if (found) merge_equal_layouts(static_cast<std::size_t>(wanted), found->ranked);
  options.search.ranked = wanted;
  return found;
}

std::optional<double> device_watts(const Cluster& cluster) {
  if (!cluster.uneven()) {
    return cluster.device.tdp_w > 0.0 ? std::optional<double>(cluster.device.tdp_w) : std::nullopt;
  }
  double watts = 0.0;
  for (const ClusterNode& node : cluster.uneven_nodes) {
    const double tdp_w = cluster.node_devices[static_cast<std::size_t>(node.device)].tdp_w;
    if (tdp_w <= 0.0) return std::nullopt;
    watts += tdp_w * node.devices;
  }
  return watts / cluster.devices();
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
  constexpr double kWattsPerKilowatt = 1e3;
  if (const auto watts = device_watts(job.cluster)) length.energy_kwh = length.gpu_hours * *watts / kWattsPerKilowatt;
  return length;
}

}  // namespace flopcast
