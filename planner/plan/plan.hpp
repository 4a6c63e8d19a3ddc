#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace flopcast {

/// What interrupts a long run. Times in seconds.
struct Interruptions {
  /// Between two failures of one GPU, whatever fails (its host and network with it). Default: 419 unexpected
  /// interruptions in 54 days on 16,384 H100, that is 50,676 GPU hours (Llama 3, 2407.21783, Table 5).
  double gpu_mtbf_s = 54.0 * 86'400.0 * 16'384.0 / 419.0;
  /// The run stands still while a checkpoint is written, and from a failure to the first step again (the steps lost not
  /// counted). Both chosen, so that Llama 3's more than 90 % effective training time comes out (2407.21783
  /// section 3.3.4).
  double checkpoint_s = 10.0;
  double restart_s = 300.0;
};

struct Goodput {
  double interval_s = 0.0;  ///< between checkpoints
  double fraction = 1.0;    ///< of the time on the clock that trains
  double failures_per_day = 0.0;

  /// Whether the run comes to its end: below a hundredth of the time the model is of no use, and the days mean nothing.
  bool finishes() const { return fraction >= 0.01; }
};

/// The best checkpoint interval and what of the time is left for training.
///   interval  √(2CM)·(1 + ⅓·√(C/2M) + C/18M) - C for C < 2M, else M: Daly 2006 (doi 10.1016/j.future.2004.11.016),
///             eq. 37; its first term is Young 1974 (doi 10.1145/361147.361115)
///   fraction  τ / (M·e^(R/M)·(e^((τ+C)/M) - 1)): Daly's eq. 20, failures anywhere, also while checkpointing or
///             restarting
/// with M the mean time between failures of all GPUs together, C a checkpoint, R a restart.
/// Left out: failures that come in bursts, hangs that nobody notices, slow nodes.
Goodput goodput_of(const Interruptions& interruptions, int gpus);

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
