#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.hpp"

namespace flopcast {

/// Of a question that nothing answers: how far the closest layout is from fitting, and the smallest changes that make
/// something fit, one sentence each: an axis that the job fixes set free ("recompute full fits with 3.1 GiB to spare"),
/// more nodes ("needs 2 more nodes").
std::vector<std::string> nearest_feasible(const Job& job, const SearchSpace& space, const PlanOptions& options,
                                          const SearchResult& nothing, const ParallelFor& parallel_for);

}  // namespace flopcast
