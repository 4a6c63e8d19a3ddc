#include "planner/search/search.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "planner/search/cluster_search.hpp"

namespace flopcast {

Score score_of(Objective objective, double time_s, int devices, double training_share) {
  const double clock_s = time_s / training_share;
  switch (objective) {
    case Objective::kTime:
      return {clock_s, clock_s};
    case Objective::kGpus:
      return {static_cast<double>(devices), clock_s};
    case Objective::kCost:
    case Objective::kEnergy:
      break;
  }
  return {clock_s * devices, clock_s};
}

Evaluation evaluate_layout(const Job& job, const std::vector<Allocation>& allocations) {
  const PreparedStep step = prepare_periodic(job, [](const std::string& path) -> std::string {
    throw InternalError("a planned layout asked for the file " + path);
  });
  return evaluate(step, Detail::kTime, {.allocations = allocations, .time_of_misfits = false});
}

bool ranks_before(const PlannedLayout& a, const PlannedLayout& b) {
  if (a.score.better_than(b.score)) return true;
  if (b.score.better_than(a.score)) return false;
  return a.memory_share != b.memory_share ? a.memory_share < b.memory_share : a.order < b.order;
}

namespace {

void add_rejected(const std::string& reason, std::int64_t count, std::vector<RejectedLayouts>& rejected) {
  if (count == 0) return;
  for (RejectedLayouts& known : rejected) {
    if (known.reason != reason) continue;
    known.count += count;
    return;
  }
  rejected.push_back({reason, count});
}

void sort_rejected(std::vector<RejectedLayouts>& rejected) {
  std::stable_sort(rejected.begin(), rejected.end(),
                   [](const RejectedLayouts& a, const RejectedLayouts& b) { return a.count > b.count; });
}

bool dominates(const PlannedLayout& a, double time_s, double memory_share, int devices) {
  return a.score.time_s <= time_s && a.memory_share <= memory_share && a.devices <= devices;
}

}  // namespace

LayoutSearch::LayoutSearch(const SearchSpace& space, const SearchOptions& options, ParallelFor parallel_for)
    : space_(space), options_(options), parallel_for_(std::move(parallel_for)) {}

void LayoutSearch::rule_out_by(const SearchResult& other) {
  for (const PlannedLayout& planned : other.ranked) keep(planned);
  for (const PlannedLayout& planned : other.pareto) add_to_front(planned);
  if (!other.ranked.empty()) foreign_nodes_ = other.ranked.front().nodes;
}

void LayoutSearch::explore(const Job& job, double longest_step_s, const std::string& too_slow, double training_share) {
  ClusterSearch(*this, job, longest_step_s, too_slow, training_share).run();
}

void LayoutSearch::count_rejected(const std::string& reason, std::int64_t count) {
  add_rejected(reason, count, rejected_);
}

void LayoutSearch::keep(const PlannedLayout& planned) {
  rank(planned);
  add_to_front(planned);
}

void LayoutSearch::rank(const PlannedLayout& planned) {
  const auto place = std::upper_bound(ranked_.begin(), ranked_.end(), planned, ranks_before);
  ranked_.insert(place, planned);
  if (ranked_.size() > static_cast<std::size_t>(options_.ranked)) ranked_.pop_back();
}

void LayoutSearch::add_to_front(const PlannedLayout& planned) {
  const auto beats = [&planned](const PlannedLayout& known) {
    const bool same = known.score.time_s == planned.score.time_s && known.memory_share == planned.memory_share &&
                      known.devices == planned.devices;
    return same ? known.order < planned.order
                : dominates(known, planned.score.time_s, planned.memory_share, planned.devices);
  };
  if (std::any_of(front_.begin(), front_.end(), beats)) return;
  front_.erase(std::remove_if(front_.begin(), front_.end(),
                              [&planned](const PlannedLayout& known) {
                                return dominates(planned, known.score.time_s, known.memory_share, known.devices);
                              }),
               front_.end());
  front_.push_back(planned);
}

bool LayoutSearch::may_show(const Score& bound, double memory_share, int devices) const {
  if (options_.simulate_everything || ranked_.size() < static_cast<std::size_t>(options_.ranked)) return true;
  if (!ranked_.back().score.better_than(bound)) return true;
  if (bound.primary > options_.pareto_reach * ranked_.front().score.primary) return false;
  return std::none_of(front_.begin(), front_.end(), [&](const PlannedLayout& known) {
    return dominates(known, bound.time_s, memory_share, devices);
  });
}

SearchResult LayoutSearch::result() const {
  SearchResult result;
  const auto is_own = [this](const PlannedLayout& planned) { return planned.nodes != foreign_nodes_; };
  std::copy_if(ranked_.begin(), ranked_.end(), std::back_inserter(result.ranked), is_own);
  result.rejected = rejected_;
  sort_rejected(result.rejected);
  for (const PlannedLayout& planned : front_) {
    const bool near = planned.score.primary <= options_.pareto_reach * ranked_.front().score.primary;
    if (near && is_own(planned)) result.pareto.push_back(planned);
  }
  std::sort(result.pareto.begin(), result.pareto.end(), [](const PlannedLayout& a, const PlannedLayout& b) {
    if (a.devices != b.devices) return a.devices < b.devices;
    return a.time_s != b.time_s ? a.time_s < b.time_s : a.order < b.order;
  });
  result.space = counts_;
  result.closest = closest_;
  return result;
}

SearchResult merge_results(const std::vector<SearchResult>& results, const SearchOptions& options) {
  // Merging keeps what one search of all spaces would have kept.
  const SearchSpace none;
  LayoutSearch all(none, options, serial_for);
  std::uint64_t first = 0;
  for (const SearchResult& result : results) {
    for (const std::vector<PlannedLayout>* layouts : {&result.ranked, &result.pareto}) {
      for (PlannedLayout planned : *layouts) {
        planned.order += first;
        if (layouts == &result.ranked) all.rank(planned);
        all.add_to_front(planned);
      }
    }
    for (const RejectedLayouts& rejected : result.rejected) all.count_rejected(rejected.reason, rejected.count);
    all.counts_.enumerated += result.space.enumerated;
    all.counts_.pruned += result.space.pruned;
    all.counts_.simulated += result.space.simulated;
    const bool closer = result.closest && (!all.closest_ || result.closest->share < all.closest_->share);
    if (closer) all.closest_ = result.closest;
    first += static_cast<std::uint64_t>(result.space.enumerated);
  }
  return all.result();
}

}  // namespace flopcast
