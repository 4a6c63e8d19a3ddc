#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/forecast/terms.hpp"

namespace flopcast {

/// Step time of `b` as a multiple of that of `a`, with half the width of its 90 % interval. A term has the same error
/// in both layouts, independent of the other terms, so only the difference in what they spend is uncertain. With the
/// relative error e of each term such that the step of `a` has its own interval h = e·√Σ(a_i/a)², the ratio has the
/// relative error e·√Σ(a_i/a − b_i/b)².
struct TimeRatio {
  double ratio = 1.0;
  double half_width = 0.0;
};
/// Returns nothing if a's step has no interval.
std::optional<TimeRatio> compare_times(const Result& a, const Result& b);

/// Certainty of a ranking, from many draws of each term's error, shared by all layouts.
struct RankingCertainty {
  double first_is_best = 1.0;  ///< fraction of the draws in which the first layout is the fastest
  std::vector<bool> alike;     ///< per layout: true if the first beats it in less than nine of ten draws
  double optimism = 0.0;       ///< mean fraction by which the fastest of a draw undercuts the forecast of the first
};
/// Returns nothing if the first has no interval. Expects layouts of one job, fastest first.
std::optional<RankingCertainty> certainty_of(const std::vector<const Result*>& ranked);

/// Terms that differ by at least `share` of a's step time, largest first, split into those in favour of `a` and those
/// against it.
struct Reasons {
  std::vector<ComparedTerm> in_favour;
  std::vector<ComparedTerm> against;
};
Reasons reasons_for(const Result& a, const Result& b, double share);

/// The axes among dp, tp and pp that a strategy uses: more than one rank on each of these, one rank on the others.
struct Strategy {
  std::string name;  ///< "DP", "DP+TP"
  bool dp = false;
  bool tp = false;
  bool pp = false;
};
const std::vector<Strategy>& strategies();

/// Fastest layout of a strategy among those that fit the memory, or among all if none fits.
struct StrategyAnswer {
  Strategy strategy;
  std::optional<PlannedLayout> planned;  ///< empty if no layout of the kind divides model, batch and devices
  bool fits = false;
};
std::vector<StrategyAnswer> compare_strategies(const Job& job, const SearchSpace& space,
                                               const ParallelFor& parallel_for);

/// A change to how a job's replicas exchange gradients, with the gain usually claimed for it.
struct Optimization {
  std::string name;
  std::string changes;  ///< axes and what changes on them: "dp: gloo to nccl"
  std::string claim;    ///< empty if there is no common claim
  Job without;
  Job with;
};
/// Optimizations that apply to this job: NCCL instead of Gloo and MPI, if the hosts' links are known; gradients in 8
/// and 4 bits; accumulation; gradient reduction overlapped with the backward pass; preallocated gather buffers, if
/// weights are sharded and the stack allocates for each gather. Gloo and MPI carry data-parallel traffic only, as in a
/// separate process group, unless the job's other traffic uses them too: then all of it does.
std::vector<Optimization> optimizations_of(const Job& job);

}  // namespace flopcast
