#include "planner/search/cluster_search.hpp"
#include "model/partition/balanced_split.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "model/workload/transformer.hpp"
#include "planner/bounds/bounds.hpp"

namespace flopcast {

GroupPrices::GroupPrices(const Job& job, const SearchSpace& space, const LayoutGroup& group)
    : job_(job), base_(job.layout), space_(space), group_(group) {}

LayoutMember GroupPrices::without_sharding(const LayoutMember& member) const {
  LayoutMember plain = member;
  if (base_.data_parallel == DataParallel::kDdp) plain.zero = 0;
  return plain;
}

std::vector<int> GroupPrices::layers_of(const LayoutMember& member, const ScheduleShape& shape) {
  const int stages = shape.stages.model_stages;
  switch (space_.splits[member.split].kind) {
    case SplitRule::Kind::kLighterEnds:
      return layout_of(base_, space_, group_, member, job_.model.layers).stage_layers;
    case SplitRule::Kind::kBalanced: {
      LayoutMember uniform = without_sharding(member);
      const auto is_uniform = [](const SplitRule& rule) { return rule.kind == SplitRule::Kind::kUniform; };
      const auto rule = std::find_if(space_.splits.begin(), space_.splits.end(), is_uniform);
      FLOPCAST_CHECK(rule != space_.splits.end());
      uniform.split = static_cast<std::uint8_t>(rule - space_.splits.begin());
      const MemberPrice& price = find_or_price(uniform, shape);
      return balanced_layers(job_, shape.stages, price.costs, &shared_);
    }
    case SplitRule::Kind::kUniform:
      break;
  }
  if (!base_.stage_layers.empty()) return base_.stage_layers;
  return job_.profile ? balanced_stage_layers(*job_.profile, stages) : even_stage_layers(job_.model.layers, stages);
}

const MemberPrice& GroupPrices::find_or_price(const LayoutMember& member, const ScheduleShape& shape) {
  const auto same = [&](const MemberPrice& price) {
    return price.map == shape.map && price.zero == member.zero && price.split == member.split;
  };
  const auto known = std::find_if(prices_.begin(), prices_.end(), same);
  if (known != prices_.end()) return *known;
  MemberPrice price;
  price.map = shape.map;
  price.zero = member.zero;
  price.split = member.split;
  const LayoutMember plain = without_sharding(member);
  price.layers = plain.zero == member.zero ? layers_of(member, shape) : find_or_price(plain, shape).layers;
  job_.layout = layout_of(base_, space_, group_, member, job_.model.layers);
  if (shape.slices > 1) job_.layout.slices = shape.slices;
  price.costs = price_for_bounds(job_, shape.stages, price.layers, &shared_);
  prices_.push_back(std::move(price));
  return prices_.back();
}

double GroupPrices::pass_bound_of(const LayoutMember& member, const ScheduleShape& shape) {
  const LayoutMember plain = without_sharding(member);
  const MemberPrice& price = find_or_price(plain, shape);
  job_.layout = layout_of(base_, space_, group_, plain, job_.model.layers);
  return pass_bound(job_, shape, price.costs);
}

const MemberPrice& GroupPrices::of(const LayoutMember& member, const ScheduleShape& shape) {
  const MemberPrice& price = find_or_price(member, shape);
  job_.layout = layout_of(base_, space_, group_, member, job_.model.layers);
  return price;
}

namespace {

constexpr std::size_t kGroupsAtOnce = 32;
constexpr std::size_t kTightenedAtOnce = 128;
constexpr std::size_t kLayoutsAtOnce = 16;
constexpr const char* kDoesNotFit = "does not fit in memory";

// True if the ranks of a group of layouts are placed as under an earlier order, because the axes that the two orders
// arrange differently have one rank.
bool has_earlier_placement(const SearchSpace& space, const Layout& base, const LayoutGroup& group) {
  const auto order = [&group](const std::array<Axis, kGridAxes.size()>& placement) {
    std::vector<Axis> axes;
    std::copy_if(placement.begin(), placement.end(), std::back_inserter(axes),
                 [&group](Axis axis) { return group[axis] > 1; });
    return axes;
  };
  const auto own = std::find(space.placements.begin(), space.placements.end(), base.placement);
  return own != space.placements.end() && std::any_of(space.placements.begin(), own, [&](const auto& earlier) {
           return order(earlier) == order(base.placement);
         });
}

// Layouts that an earlier order of the axes already covers are neither listed nor counted again.
LayoutSpace layouts_in_this_order(const Job& job, const SearchSpace& space) {
  LayoutSpace layouts = enumerate_layouts(job, space);
  if (space.placements.empty() || job.layout.placement == space.placements.front()) return layouts;
  layouts.rejected.clear();
  layouts.valid = 0;
  const auto repeated = [&](const LayoutGroup& group) { return has_earlier_placement(space, job.layout, group); };
  layouts.groups.erase(std::remove_if(layouts.groups.begin(), layouts.groups.end(), repeated), layouts.groups.end());
  for (const LayoutGroup& group : layouts.groups) {
    layouts.valid += static_cast<std::int64_t>(layouts.members[group.members].size());
  }
  return layouts;
}

}  // namespace

ClusterSearch::ClusterSearch(LayoutSearch& search, const Job& job, double longest_step_s, std::string too_slow,
                             double training_share)
    : search_(search),
      job_(job),
      longest_step_s_(longest_step_s),
      too_slow_(std::move(too_slow)),
      training_share_(training_share),
      devices_(job.cluster.devices()),
      space_(layouts_in_this_order(job, search.space_)),
      shapes_(job.layout, search.space_),
      bounds_(job, search.space_, space_.groups, search.parallel_for_) {
  const std::vector<int>& free = search.space_.free_nodes;
  if (!free.empty()) allocations_ = standard_allocations(job.cluster, free);
  for (const LayoutGroup& group : space_.groups) {
    first_order_.push_back(search_.order_);
    search_.order_ += space_.members[group.members].size();
  }
}

Score ClusterSearch::score(double time_s) const {
  return score_of(search_.options_.objective, time_s, devices_, training_share_);
}

void ClusterSearch::run() {
  search_.counts_.enumerated += space_.enumerated();
  for (const RejectedLayouts& rejected : space_.rejected) search_.count_rejected(rejected.reason, rejected.count);
  const std::int64_t simulated_before = search_.counts_.simulated;
  sort_groups();
  while (!groups_.empty() || !candidates_.empty()) {
    tighten_first();
    const double next_group = groups_.empty() ? std::numeric_limits<double>::infinity() : groups_.front().time_s;
    if (!candidates_.empty() && candidates_.front().time_s < next_group) {
      simulate_candidates();
    } else {
      open_groups();
    }
  }
  if (!search_.found()) bound_closest_groups();
  search_.count_rejected(kDoesNotFit, misfits_);
  search_.count_rejected(too_slow_, slow_);
  const std::int64_t simulated = search_.counts_.simulated - simulated_before;
  search_.counts_.pruned += space_.valid - simulated - misfits_ - slow_;
}

namespace {

constexpr auto kWaitsLonger = [](const auto& a, const auto& b) {
  return a.time_s != b.time_s ? a.time_s > b.time_s : a.order > b.order;
};

}  // namespace

void ClusterSearch::sort_groups() {
  if (std::isfinite(longest_step_s_)) {
    std::vector<std::size_t> all(space_.groups.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    bounds_.tighten(all);
  }
  for (std::size_t index = 0; index < space_.groups.size(); ++index) {
    const auto members = static_cast<std::int64_t>(space_.members[space_.groups[index].members].size());
    const bool everything = search_.options_.simulate_everything;
    if (!everything && bounds_[index].memory_share > search_.options_.memory_limit) {
      misfits_ += members;
      misses_.push_back(index);
    } else if (!everything && bounds_[index].time_s > longest_step_s_) {
      slow_ += members;
    } else {
      groups_.push_back({bounds_[index].time_s, index});
    }
  }
  std::make_heap(groups_.begin(), groups_.end(), kWaitsLonger);
}

ClusterSearch::WaitingGroup ClusterSearch::take_group() {
  std::pop_heap(groups_.begin(), groups_.end(), kWaitsLonger);
  const WaitingGroup group = groups_.back();
  groups_.pop_back();
  return group;
}

// Tightens bounds until the first group's bound is tight; only then is it certain to be the first.
void ClusterSearch::tighten_first() {
  // If the first group is too slow at any memory use, so are all groups behind it.
  if (!groups_.empty() && !search_.may_show(score(groups_.front().time_s), 0.0, devices_)) groups_.clear();
  while (!groups_.empty() && !bounds_[groups_.front().order].tight) {
    std::vector<std::size_t> loose;
    while (!groups_.empty() && loose.size() < kTightenedAtOnce && !bounds_[groups_.front().order].tight) {
      const WaitingGroup group = take_group();
      if (search_.may_show(score(group.time_s), bounds_[group.order].memory_share, devices_)) {
        loose.push_back(group.order);
      }
    }
    bounds_.tighten(loose);
    for (const std::size_t group : loose) {
      groups_.push_back({bounds_[group].time_s, group});
      std::push_heap(groups_.begin(), groups_.end(), kWaitsLonger);
    }
  }
}

// A group's bound may belong to none of its layouts, so the members of the groups that miss by the least are bounded
// individually.
void ClusterSearch::bound_closest_groups() {
  constexpr std::size_t kGroupsLookedAt = 8;
  const std::size_t count = std::min(kGroupsLookedAt, misses_.size());
  const auto end = misses_.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(misses_.begin(), end, misses_.end(), [this](std::size_t a, std::size_t b) {
    const double first = bounds_[a].memory_share;
    const double second = bounds_[b].memory_share;
    return first != second ? first < second : a < b;
  });
  for (std::size_t index = 0; index < count; ++index) {
    remember_shapes(misses_[index]);
    for (const Candidate& candidate : bound_members(misses_[index]))
      miss_if_closest(candidate, candidate.memory_share, candidate.bytes);
  }
}

// Called by one thread before others look the shapes up.
void ClusterSearch::remember_shapes(std::size_t group) {
  const LayoutGroup& axes = space_.groups[group];
  for (const LayoutMember& member : space_.members[axes.members])
    shapes_.shape(member.schedule, axes.pp, member.chunks, axes.microbatches);
}

void ClusterSearch::open_groups() {
  std::vector<std::size_t> opened;
  while (!groups_.empty() && opened.size() < kGroupsAtOnce) {
    const WaitingGroup group = take_group();
    if (search_.may_show(score(group.time_s), bounds_[group.order].memory_share, devices_)) {
      opened.push_back(group.order);
    }
    tighten_first();
  }
  for (const std::size_t group : opened) remember_shapes(group);
  std::vector<std::vector<Candidate>> found(opened.size());
  search_.parallel_for_(opened.size(), [&](std::size_t index) { found[index] = bound_members(opened[index]); });
  for (std::vector<Candidate>& candidates : found) add_candidates(std::move(candidates));
}

Job ClusterSearch::job_of(const Candidate& candidate) const {
  Job job = job_;
  job.layout =
      layout_of(job_.layout, search_.space_, space_.groups[candidate.group], candidate.member, job_.model.layers);
  if (!candidate.layers.empty()) job.layout.stage_layers = candidate.layers;
  return job;
}

std::vector<ClusterSearch::Candidate> ClusterSearch::bound_members(std::size_t group) const {
  const LayoutGroup& axes = space_.groups[group];
  const std::vector<LayoutMember>& members = space_.members[axes.members];
  GroupPrices prices(job_, search_.space_, axes);
  std::vector<Candidate> candidates;
  for (std::size_t index = 0; index < members.size(); ++index) {
    const LayoutMember& member = members[index];
    const ScheduleShape& shape = *shapes_.known(member.schedule, axes.pp, member.chunks, axes.microbatches);
    const double filled = filled_bound(bounds_[group], shape, axes.microbatches);
    if (!search_.may_show(score(filled), bounds_[group].memory_share, devices_)) continue;
    const double passes = std::max(bounds_[group].time_s, prices.pass_bound_of(member, shape));
    if (!search_.may_show(score(passes), bounds_[group].memory_share, devices_)) continue;
    const MemberPrice& price = prices.of(member, shape);
    const bool balanced = search_.space_.splits[member.split].kind == SplitRule::Kind::kBalanced;
    // A split that is balanced already is listed as uniform.
    if (balanced && price.layers == even_stage_layers(job_.model.layers, shape.stages.model_stages)) continue;
    Candidate candidate;
    candidate.time_s = std::max(passes, time_bound(prices.job(), shape, price.costs));
    const FullestRank memory = memory_bound(prices.job(), shape, price.costs);
    candidate.memory_share = memory.share;
    candidate.bytes = memory.bytes;
    candidate.group = group;
    candidate.member = member;
    candidate.order = first_order_[group] + index;
    if (balanced) candidate.layers = price.layers;
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

void ClusterSearch::miss_if_closest(const Candidate& candidate, double share, double bytes) {
  if (search_.closest_ && search_.closest_->share <= share) return;
  search_.closest_ = TightestMiss{job_.cluster.nodes, job_of(candidate).layout, bytes, share};
}

void ClusterSearch::add_candidates(std::vector<Candidate> candidates) {
  const bool everything = search_.options_.simulate_everything;
  for (Candidate& candidate : candidates) {
    if (!everything && candidate.memory_share > search_.options_.memory_limit) {
      ++misfits_;
      miss_if_closest(candidate, candidate.memory_share, candidate.bytes);
    } else if (!everything && candidate.time_s > longest_step_s_) {
      ++slow_;
    } else {
      candidates_.push_back(std::move(candidate));
      std::push_heap(candidates_.begin(), candidates_.end(), kWaitsLonger);
    }
  }
}

void ClusterSearch::simulate_candidates() {
  std::vector<Candidate> batch;
  while (!candidates_.empty() && batch.size() < kLayoutsAtOnce) {
    std::pop_heap(candidates_.begin(), candidates_.end(), kWaitsLonger);
    Candidate candidate = std::move(candidates_.back());
    candidates_.pop_back();
    if (search_.may_show(score(candidate.time_s), candidate.memory_share, devices_)) {
      batch.push_back(std::move(candidate));
    }
  }
  std::vector<Layout> layouts(batch.size());
  std::vector<Evaluation> evaluated(batch.size());
  search_.parallel_for_(batch.size(), [&](std::size_t index) {
    const Job job = job_of(batch[index]);
    layouts[index] = job.layout;
    evaluated[index] = evaluate_layout(job, allocations_);
  });
  for (std::size_t index = 0; index < batch.size(); ++index) take(batch[index], layouts[index], evaluated[index]);
}

void ClusterSearch::take(const Candidate& candidate, const Layout& layout, const Evaluation& evaluated) {
  const FullestRank memory = fullest_share(evaluated.memory);
  if (!evaluated.memory.fits || memory.share > search_.options_.memory_limit) {
    ++misfits_;
    miss_if_closest(candidate, memory.share, memory.bytes);
    return;
  }
  if (evaluated.time_s > longest_step_s_) {
    ++slow_;
    return;
  }
  ++search_.counts_.simulated;
  PlannedLayout planned;
  planned.nodes = job_.cluster.nodes;
  planned.devices = devices_;
  planned.layout = layout;
  if (!allocations_.empty()) planned.allocation = allocations_[evaluated.allocation];
  planned.time_s = evaluated.time_s;
  planned.memory_share = memory.share;
  planned.memory_bytes = memory.bytes;
  planned.score = score(evaluated.time_s);
  planned.order = candidate.order;
  search_.keep(planned);
}

}  // namespace flopcast
