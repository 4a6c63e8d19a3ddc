#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/plan/goodput.hpp"
#include "planner/search/search.hpp"

namespace flopcast {

/// What is asked beside the space.
struct PlanOptions {
  SearchOptions search;
  /// Cluster sizes in nodes, ascending; one for the job's own.
  std::vector<int> nodes;
  std::optional<double> deadline_s;  ///< of the whole run, interruptions included
  std::optional<double> budget_usd;
  std::optional<Interruptions> interruptions;  ///< absent: none
};

/// Why a layout that fits is rejected.
inline constexpr const char* kMissesDeadline = "misses the deadline";
inline constexpr const char* kExceedsBudget = "exceeds the budget";
inline constexpr const char* kNeverFinishes = "the run never finishes: failures come too often";

/// Searches every size. With the objective gpus it stops at the first size where something fits and meets the limits.
/// Expects tokens with a deadline, and tokens and a price with a budget. Of a run with tokens the objective counts
/// interruptions.
SearchResult plan(const Job& job, const SearchSpace& space, const PlanOptions& options,
                  const ParallelFor& parallel_for);

/// The job on another number of nodes.
Job on_nodes(const Job& job, int nodes);

/// Of the whole run: steps of `time_s` on so many GPUs.
struct RunLength {
  double steps = 0.0;
  double days = 0.0;  ///< on the clock, interruptions included
  double gpu_hours = 0.0;
  std::optional<double> cost_usd;
  std::optional<Goodput> goodput;
};
/// Nothing without tokens.
std::optional<RunLength> run_length(const Job& job, double time_s, int devices,
                                    const std::optional<Interruptions>& interruptions);

}  // namespace flopcast
