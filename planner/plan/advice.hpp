#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// Of a question that nothing answers.
struct Refusal {
  std::string missed;                ///< what no layout does: "fits", or "meets the deadline" where some fit
  std::vector<std::string> changes;  ///< a sentence each
};

/// How far the closest layout is from fitting, and the smallest changes that make something fit, one sentence each: an
/// axis that the job fixes set free ("recompute full fits with 3.1 GiB to spare"), more nodes ("needs 2 more nodes").
/// Where layouts fit but miss the deadline or the budget: the fastest and the cheapest there is, and what would meet
/// it.
Refusal nearest_feasible(const Job& job, const SearchSpace& space, const PlanOptions& options,
                         const SearchResult& nothing, const ParallelFor& parallel_for);

/// What practitioners go by, and whether a layout does.
struct RuleOfThumb {
  std::string rule;
  std::string source;
  bool followed = false;
  std::string here;  ///< the figures of the layout
};
std::vector<RuleOfThumb> rules_of_thumb(const Forecast& forecast);

/// A layout's step with the other ways to send tokens to their experts, and to hide that: what the software can be
/// told, which a plan takes as the job says. Nothing without expert-parallel ranks.
std::optional<std::string> exchanges_compared(const Forecast& forecast);

}  // namespace flopcast
