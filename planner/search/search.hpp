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

/// What the best layout is best at.
enum class Objective { kTime, kCost, kGpus, kEnergy };
template <>
struct EnumNames<Objective> {
  static constexpr std::string_view kNames[] = {"time", "cost", "gpus", "energy"};
};

/// What layouts are ordered by: the objective, then the time on the clock for one step: its time / the share of the
/// clock that trains, which falls as GPUs are added (Goodput). Cost and energy of a step are taken as proportional to
/// device time on the clock (price and power of a device are those of the job; its power is the datasheet's, busy or
/// waiting: device_watts), so on one cluster they order as time does.
struct Score {
  double primary = 0.0;
  double time_s = 0.0;

  bool better_than(const Score& other) const {
    return primary != other.primary ? primary < other.primary : time_s < other.time_s;
  }
};
Score score_of(Objective objective, double time_s, int devices, double training_share = 1.0);

/// Time and memory of a layout that reads no file; one that does not fit has no time. On a network on each of the
/// allocations, where there are any.
Evaluation evaluate_layout(const Job& job, const std::vector<Allocation>& allocations = {});

/// A layout that fits, simulated.
struct PlannedLayout {
  int nodes = 1;
  int devices = 1;
  Layout layout;
  std::optional<Allocation> allocation;  ///< where the search chose one
  double time_s = 0.0;                   ///< of one step
  double memory_share = 0.0;             ///< of the fullest rank, of its device's memory
  double memory_bytes = 0.0;             ///< of the fullest rank, as nvidia-smi shows it
  Score score;
  std::uint64_t order = 0;  ///< its place in the enumeration
};

/// Layouts are ranked by score, then by less memory, then by their place in the enumeration: fewer GPUs, then tp, cp,
/// pp, ep, microbatch, sequence parallelism, recomputation, schedule, chunks, ZeRO stage and split, smallest first;
/// of a space with several placements, all of the first before those of the next.
bool ranks_before(const PlannedLayout& a, const PlannedLayout& b);

/// A layout that does not fit, the closest to it so far.
struct TightestMiss {
  int nodes = 1;
  Layout layout;
  double bytes = 0.0;  ///< of the fullest rank
  double share = std::numeric_limits<double>::infinity();
};

struct SpaceCounts {
  std::int64_t enumerated = 0;  ///< rejected + pruned + simulated
  std::int64_t pruned = 0;      ///< valid, and by a bound no better than what was found
  std::int64_t simulated = 0;   ///< that fit
};

struct SearchOptions {
  Objective objective = Objective::kTime;
  int ranked = 10;  ///< how many of the best are wanted
  /// How far the front of time on the clock, memory and GPUs is wanted: up to this many times the best score. All of
  /// it (infinity) takes several times as long, since bounds rule out less.
  double pareto_reach = 1.1;
  double memory_limit = 1.0;         ///< share of a device's memory that a layout may take
  bool simulate_everything = false;  ///< for tests: bounds are not used
};

struct SearchResult {
  std::vector<PlannedLayout> ranked;  ///< best first
  std::vector<PlannedLayout> pareto;  ///< of time, memory and devices; by devices, then time
  std::vector<RejectedLayouts> rejected;
  SpaceCounts space;
  std::optional<TightestMiss> closest;
};

/// The results of searches of spaces that have no layout in common, as of one search of them all: in the order in which
/// that would enumerate them. Counts are added up.
SearchResult merge_results(const std::vector<SearchResult>& results, const SearchOptions& options);

/// The best layouts of a job over one or several sizes of its cluster.
///
/// Best first: groups of layouts (GroupBounds), then layouts (time_bound, memory_bound) wait in the order of their
/// bounds, and are opened or simulated until no bound is as good as the last layout wanted. So the result is that of
/// simulating everything (tested); it does not depend on the number of threads, nor do the counts.
class LayoutSearch {
 public:
  LayoutSearch(const SearchSpace& space, const SearchOptions& options, ParallelFor parallel_for);

  /// Layouts of another search that are in the running: none that they rule out is looked at, nor are they themselves
  /// in the result.
  void rule_out_by(const SearchResult& other);
  /// Adds the layouts on the cluster of `job`. Layouts whose step takes longer than `longest_step_s` are rejected as
  /// `too_slow`. Of the time on the clock `training_share` trains.
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
  /// Whether a layout of at least this score, time and memory on so many devices could still show in the result.
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
  int foreign_nodes_ = 0;  // the cluster size of layouts that rule_out_by brought
};

}  // namespace flopcast
