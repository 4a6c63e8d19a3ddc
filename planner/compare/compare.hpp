#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/forecast/terms.hpp"

namespace flopcast {

/// How many times as long as `a` a step of `b` takes, with the half of its 90 % interval. Errors of a term are the same
/// in both layouts and independent between terms, so only what they spend differently is uncertain: with the relative
/// error e of each term such that the step of `a` has its own interval h = e·√Σ(a_i/a)², the ratio's is
/// e·√Σ(a_i/a − b_i/b)² of itself.
struct TimeRatio {
  double ratio = 1.0;
  double half_width = 0.0;
};
/// Nothing where a's step has no interval.
std::optional<TimeRatio> compare_times(const Result& a, const Result& b);

/// How sure a ranking is, by drawing each term's error many times, the same error for every layout.
struct RankingCertainty {
  double first_is_best = 1.0;  ///< share of the draws in which the first is the fastest
  std::vector<bool> alike;     ///< of each layout: the first beats it in less than nine of ten draws
  double optimism = 0.0;       ///< by which the fastest of a draw is below the first's forecast, mean, as a share
};
/// Nothing where the first has no interval. Layouts are of one job, the fastest first.
std::optional<RankingCertainty> certainty_of(const std::vector<const Result*>& ranked);

/// The terms with a delta of at least `share` of a's step time, the largest first, those in favour of `a` and those
/// against it.
struct Reasons {
  std::vector<ComparedTerm> in_favour;
  std::vector<ComparedTerm> against;
};
Reasons reasons_for(const Result& a, const Result& b, double share);

/// Which of dp, tp and pp a strategy uses: more than one rank on each, one on the others.
struct Strategy {
  std::string name;  ///< "DP", "DP+TP"
  bool dp = false;
  bool tp = false;
  bool pp = false;
};
const std::vector<Strategy>& strategies();

/// The fastest layout of a strategy, whether it fits the memory or not; one that fits where one does.
struct StrategyAnswer {
  Strategy strategy;
  std::optional<PlannedLayout> planned;  ///< nothing: no layout of the kind divides model, batch and devices
  bool fits = false;
};
std::vector<StrategyAnswer> compare_strategies(const Job& job, const SearchSpace& space,
                                               const ParallelFor& parallel_for);

/// A change to how a job's replicas exchange gradients, and what is usually claimed for it.
struct Optimization {
  std::string name;
  std::string changes;  ///< of which axes what: "dp: gloo to nccl"
  std::string claim;    ///< empty where nothing is
  Job without;
  Job with;
};
/// Those that this job can have: NCCL instead of Gloo and MPI, where the hosts' links are known; gradients in 8 and 4
/// bits; accumulation; reduction beside the backward pass; preallocated gather buffers, where weights are sharded and
/// the stack allocates anew. Gloo and MPI stand for data-parallel traffic alone, as a process group of its own has it,
/// unless the job's other traffic goes through them too: then all does.
std::vector<Optimization> optimizations_of(const Job& job);

}  // namespace flopcast
