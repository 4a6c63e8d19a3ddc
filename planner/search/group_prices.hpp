#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "model/error/error.hpp"
#include "planner/bounds/bounds.hpp"

namespace flopcast {

struct MemberPrice {
  std::size_t map = 0;
  int zero = 0;
  int split = 0;
  std::vector<int> layers;
  StepCosts costs;
};

/// Prices of a group's members, each made once: members that share stage map, sharding and split share a price, and the
/// price without sharding tells which layers balance.
class GroupPrices {
 public:
  GroupPrices(const Job& job, const SearchSpace& space, const LayoutGroup& group);

  /// pass_bound of the member less its sharding.
  double pass_bound_of(const LayoutMember& member, const ScheduleShape& shape);
  /// Leaves job() with the member's layout.
  const MemberPrice& of(const LayoutMember& member, const ScheduleShape& shape);
  const Job& job() const { return job_; }

 private:
  const MemberPrice& find_or_price(const LayoutMember& member, const ScheduleShape& shape);
  std::vector<int> layers_of(const LayoutMember& member, const ScheduleShape& shape);
  LayoutMember without_sharding(const LayoutMember& member) const;

  Job job_;
  const Layout base_;
  const SearchSpace& space_;
  const LayoutGroup& group_;
  std::deque<MemberPrice> prices_;  // references stay valid while it grows
};

}  // namespace flopcast
