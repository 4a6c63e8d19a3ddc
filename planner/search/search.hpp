#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/network_fabric.hpp"
#include "model/job.hpp"
#include "planner/bounds/bounds.hpp"
#include "planner/space/space.hpp"
#include "sim/forecast/evaluate.hpp"

namespace flopcast {

/// The quantity that the best layout minimises.
enum class Objective { kTime, kCost, kGpus, kEnergy };
template <>
struct EnumNames<Objective> {
  static constexpr std::string_view kNames[] = {"time", "cost", "gpus", "energy"};
};

/// Sort key of layouts: the objective, then the wall-clock time of one step, which is its time divided by the fraction
/// of the clock spent training; that fraction falls as GPUs are added (Goodput). Cost and energy of a step are
/// proportional to device time on the clock, since price and power per device are constants of the job (power is the
/// datasheet's, busy or waiting: device_watts), so on one cluster they order layouts as time does.
struct Score {
  double primary = 0.0;
  double time_s = 0.0;

  bool better_than(const Score& other) const {
    return primary != other.primary ? primary < other.primary : time_s < other.time_s;
  }
};
Score score_of(Objective objective, double time_s, int devices, double training_share = 1.0);

/// Time and memory of a layout that reads no file; a layout that does not fit has no time. On a network, takes the best
/// of the allocations if any are given.
Evaluation evaluate_layout(const Job& job, const std::vector<Allocation>& allocations = {});

/// A simulated layout that fits.
struct PlannedLayout {
  int nodes = 1;
  int devices = 1;
  Layout layout;
  std::optional<Allocation> allocation;  ///< set if the search chose one
  double time_s = 0.0;                   ///< per step
  double memory_share = 0.0;             ///< on the fullest rank, as a fraction of its device's memory
  double memory_bytes = 0.0;             ///< on the fullest rank, as nvidia-smi shows it
  Score score;
  std::uint64_t order = 0;  ///< index in the enumeration
};

/// Ranks layouts by score, then by less memory, then by their index in the enumeration: fewer GPUs, then tp, cp, pp,
/// ep, microbatch, sequence parallelism, recomputation, schedule, chunks, ZeRO stage and split, smallest first; with
/// several placements, all layouts of the first before those of the next.
bool ranks_before(const PlannedLayout& a, const PlannedLayout& b);

/// The layout found so far that misses fitting by the least.
struct TightestMiss {
  int nodes = 1;
  Layout layout;
  double bytes = 0.0;  ///< on the fullest rank
  double share = std::numeric_limits<double>::infinity();
};

struct SpaceCounts {
  std::int64_t enumerated = 0;  ///< rejected + pruned + simulated
  std::int64_t pruned = 0;      ///< valid, but ruled out by a bound
  std::int64_t simulated = 0;   ///< and found to fit
};

struct SearchOptions {
  Objective objective = Objective::kTime;
  int ranked = 10;  ///< number of best layouts to return
  /// Extent of the Pareto front of wall-clock time, memory and GPUs: up to this multiple of the best score. The whole
  /// front (infinity) takes several times as long, since bounds rule out less.
  double pareto_reach = 1.1;
  double memory_limit = 1.0;         ///< fraction of a device's memory that a layout may use
  bool simulate_everything = false;  ///< for tests: ignores the bounds
};

struct SearchResult {
  std::vector<PlannedLayout> ranked;  ///< best first
  std::vector<PlannedLayout> pareto;  ///< front of time, memory and devices; sorted by devices, then time
  std::vector<RejectedLayouts> rejected;
  SpaceCounts space;
  std::optional<TightestMiss> closest;
};

/// Merges the results of searches of disjoint spaces into the result of one search of them all, in that search's
/// enumeration order. Counts are added up.
SearchResult merge_results(const std::vector<SearchResult>& results, const SearchOptions& options);

/// The best layouts of a job over one or several sizes of its cluster.
///
/// Best-first search: groups of layouts (GroupBounds) and then layouts (time_bound, memory_bound) wait in the order of
/// their bounds and are opened or simulated until no bound is as good as the last layout wanted. The result equals that
/// of simulating everything (tested); neither it nor the counts depend on the number of threads.
class LayoutSearch {
 public:
  LayoutSearch(const SearchSpace& space, const SearchOptions& options, ParallelFor parallel_for);

  /// Lets the layouts of another search compete: layouts that they rule out are skipped, but they do not appear in the
  /// result.
  void rule_out_by(const SearchResult& other);
  /// Adds the layouts on the cluster of `job`. Layouts whose step takes longer than `longest_step_s` are rejected with
  /// the reason `too_slow`. `training_share` is the fraction of the clock spent training.
  void explore(const Job& job, double longest_step_s, const std::string& too_slow, double training_share = 1.0);
  SearchResult result() const;
  bool found() const { return !ranked_.empty(); }

 private:
  friend class ClusterSearch;
  friend SearchResult merge_results(const std::vector<SearchResult>& results, const SearchOptions& options);

  void count_rejected(const std::string& reason, std::int64_t count);
  void keep(const PlannedLayout& planned);
  void rank(const PlannedLayout& planned);
  void add_to_front(const PlannedLayout& planned);
  /// True if a layout of at least this score and memory on `devices` devices can still appear in the result.
  bool may_show(const Score& bound, double memory_share, int devices) const;

  const SearchSpace& space_;
  SearchOptions options_;
  ParallelFor parallel_for_;
  std::vector<PlannedLayout> ranked_;
  std::vector<PlannedLayout> front_;
  std::vector<RejectedLayouts> rejected_;
  SpaceCounts counts_;
  std::optional<TightestMiss> closest_;
  std::uint64_t order_ = 0;
  int foreign_nodes_ = 0;  // cluster size of the layouts from rule_out_by
};

}  // namespace flopcast
