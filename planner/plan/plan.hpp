#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"
#include "sim/run/goodput.hpp"

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

/// Searches every size. With the objective gpus it stops at the first where something fits and meets the limits. Else
/// the largest is searched first, and what it has found rules out layouts of the others; these do not know of each
/// other, so that processes can share them (SizedPlan). Expects tokens with a deadline, and tokens and a price with a
/// budget. Of a run with tokens the objective counts interruptions.
SearchResult plan(const Job& job, const SearchSpace& space, const PlanOptions& options,
                  const ParallelFor& parallel_for);

/// A plan in parts, each a size of the cluster, which can be searched in any order and anywhere.
class SizedPlan {
 public:
  /// Searches the largest size where that rules out others. The arguments outlive the plan.
  SizedPlan(const Job& job, const SearchSpace& space, const PlanOptions& options, ParallelFor parallel_for);

  std::size_t parts() const { return sizes_.size(); }
  SearchResult search(std::size_t part) const;
  /// Whether the parts after one with this result are left out.
  bool ends_with(const SearchResult& part) const;
  /// Of the parts in their order, up to the one that ends the plan.
  SearchResult merge(const std::vector<SearchResult>& parts) const;

 private:
  SearchResult search_size(int nodes, const SearchResult* largest) const;

  const Job& job_;
  const SearchSpace& space_;
  const PlanOptions& options_;
  ParallelFor parallel_for_;
  std::vector<int> sizes_;
  std::optional<SearchResult> largest_;
};

/// The job on another number of nodes.
Job on_nodes(const Job& job, int nodes);

/// What a device draws at most: the mean of the datasheets' thermal design powers, W. Hosts, network and cooling are
/// left out, and a device that waits draws less, so energies are upper estimates of the devices'. Nothing where a
/// device of the cluster has none.
std::optional<double> device_watts(const Cluster& cluster);

/// Of the whole run: steps of `time_s` on so many GPUs.
struct RunLength {
  double steps = 0.0;
  double days = 0.0;  ///< on the clock, interruptions included
  double gpu_hours = 0.0;
  std::optional<double> cost_usd;
  std::optional<double> energy_kwh;  ///< of the devices: device_watts · gpu_hours
  std::optional<Goodput> goodput;
};
/// Nothing without tokens.
std::optional<RunLength> run_length(const Job& job, double time_s, int devices,
                                    const std::optional<Interruptions>& interruptions);

}  // namespace flopcast
