#include "planner/search/search.hpp"

#include <algorithm>
#include <utility>

#include "planner/search/cluster_search.hpp"

namespace flopcast {

bool ranks_before(const PlannedLayout& a, const PlannedLayout& b) {
  if (a.score.better_than(b.score)) return true;
  if (b.score.better_than(a.score)) return false;
  return a.memory_share != b.memory_share ? a.memory_share < b.memory_share : a.order < b.order;
}

namespace {

bool dominates(const PlannedLayout& a, double time_s, double memory_share, int devices) {
  return a.score.time_s <= time_s && a.memory_share <= memory_share && a.devices <= devices;
}

}  // namespace

LayoutSearch::LayoutSearch(const SearchSpace& space, const SearchOptions& options, ParallelFor parallel_for)
    : space_(space), options_(options), parallel_for_(std::move(parallel_for)) {}

void LayoutSearch::explore(const Job& job, double longest_step_s, const std::string& too_slow, double training_share) {
  ClusterSearch(*this, job, longest_step_s, too_slow, training_share).run();
}

void LayoutSearch::count_rejected(const std::string& reason, std::int64_t count) {
  if (count == 0) return;
  for (RejectedLayouts& known : rejected_) {
    if (known.reason != reason) continue;
    known.count += count;
    return;
  }
  rejected_.push_back({reason, count});
}

void LayoutSearch::keep(const PlannedLayout& planned) {
  const auto place = std::upper_bound(ranked_.begin(), ranked_.end(), planned, ranks_before);
  ranked_.insert(place, planned);
  if (ranked_.size() > static_cast<std::size_t>(options_.ranked)) ranked_.pop_back();
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
  result.ranked = ranked_;
  result.rejected = rejected_;
  std::stable_sort(result.rejected.begin(), result.rejected.end(),
                   [](const RejectedLayouts& a, const RejectedLayouts& b) { return a.count > b.count; });
  for (const PlannedLayout& planned : front_) {
    if (planned.score.primary <= options_.pareto_reach * ranked_.front().score.primary) {
      result.pareto.push_back(planned);
    }
  }
  std::sort(result.pareto.begin(), result.pareto.end(), [](const PlannedLayout& a, const PlannedLayout& b) {
    if (a.devices != b.devices) return a.devices < b.devices;
    return a.time_s != b.time_s ? a.time_s < b.time_s : a.order < b.order;
  });
  result.space = counts_;
  result.closest = closest_;
  return result;
}

}  // namespace flopcast
