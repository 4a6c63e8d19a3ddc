#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "model/job.hpp"
#include "planner/parallel_for.hpp"
#include "planner/space/space.hpp"

namespace flopcast {

/// What no member of a group undercuts.
struct GroupBound {
  double time_s = 0.0;
  double memory_share = 0.0;  ///< of the smallest device's memory
  double bytes = 0.0;
};

/// Bounds of whole groups, from one price of the whole model as a single stage for all groups that differ only in dp,
/// pp or the number of microbatches: the busiest rank computes at least the mean of all, m · work / pp, and the fullest
/// holds at least the mean of their states at the most sharding of the space, and of one microbatch's activations.
/// Clusters of uneven nodes are not bounded this way: all bounds are 0.
std::vector<GroupBound> bound_groups(const Job& job, const SearchSpace& space, const std::vector<LayoutGroup>& groups,
                                     const ParallelFor& parallel_for);

}  // namespace flopcast
