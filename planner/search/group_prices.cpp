#include "planner/search/group_prices.hpp"

#include <algorithm>
#include <utility>

#include "model/workload/layer_profile.hpp"
#include "planner/bounds/balanced_layers.hpp"

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
      return balanced_layers(job_, shape.stages, price.costs);
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
  price.costs = price_for_bounds(job_, shape.stages, price.layers);
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

}  // namespace flopcast
