#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "import/programs/launch.hpp"
#include "model/config/document.hpp"
#include "planner/search/search.hpp"
#include "planner/space/space.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

/// The question, apart from the search space.
struct PlanOptions {
  SearchOptions search;
  /// Cluster sizes in nodes, ascending. A single entry means the job's own size.
  std::vector<int> nodes;
  std::optional<double> deadline_s;  ///< for the whole run, interruptions included
  std::optional<double> budget_usd;
  std::optional<Interruptions> interruptions;  ///< absent: a run without interruptions
};

/// Reasons for rejecting a layout that fits.
inline constexpr const char* kMissesDeadline = "misses the deadline";
inline constexpr const char* kExceedsBudget = "exceeds the budget";
inline constexpr const char* kNeverFinishes = "the run never finishes: failures come too often";

/// Searches all cluster sizes. With the objective gpus it stops at the first size where a layout fits and meets the
/// limits. Otherwise it searches the largest size first and uses the result to rule out layouts of the other sizes,
/// which do not depend on each other, so that processes can share them (SizedPlan). A deadline requires tokens; a
/// budget requires tokens and a price. For a run with tokens the objective includes interruptions.
SearchResult plan(const Job& job, const SearchSpace& space, const PlanOptions& options,
                  const ParallelFor& parallel_for);

/// Fraction of the memory that a plan uses by default. The rest absorbs longer samples and library buffers. Assumed,
/// not measured.
inline constexpr double kRoomyMemory = 0.95;

/// Returns an error if failures leave the run less than 1 % of the time to train. Checked on the smallest size
/// requested, where failures are rarest.
std::optional<Diagnostic> endless_run(const Job& job, const PlanOptions& options);

/// Runs one search: plan(), its parts, or a share of them. Returns nothing if another process writes the answer.
using Search = std::function<std::optional<SearchResult>(const PlanOptions& options)>;

/// The search of every front end, called after endless_run. Without a `memory_limit` layouts leave room (kRoomyMemory);
/// if no layout does, it searches those that fit at all and adds a note. Among layouts with the same step time and GPU
/// count only the one with the least memory is kept, the first of equals. Then the simplest layout (even stages, few
/// chunks) within 0.2 % of the best time, a difference too small to measure, moves to the front. Keeps at most
/// options.search.ranked layouts and sets options.search.memory_limit to the limit under which they were found.
std::optional<SearchResult> search_with_room(PlanOptions& options, std::optional<double> memory_limit,
                                             const Search& search, std::vector<std::string>& notes);

/// A plan divided into parts, one per cluster size, which can be searched in any order and by any process.
class SizedPlan {
 public:
  /// Searches the largest size first if its result rules out layouts of others. The arguments must outlive the plan.
  SizedPlan(const Job& job, const SearchSpace& space, const PlanOptions& options, ParallelFor parallel_for);

  std::size_t parts() const { return sizes_.size(); }
  SearchResult search(std::size_t part) const;
  /// True if the parts after one with this result are skipped.
  bool ends_with(const SearchResult& part) const;
  /// Merges the parts, in order, up to the one that ends the plan.
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

/// The job on a different number of nodes.
Job on_nodes(const Job& job, int nodes);

/// Mean thermal design power of the datasheets, in W: the most that a device draws. Hosts, network and cooling are left
/// out, and a waiting device draws less, so energies are upper estimates for the devices. Nothing if a device of the
/// cluster has no such figure.
std::optional<double> device_watts(const Cluster& cluster);

/// The whole run: steps of `time_s` on `devices` GPUs.
struct RunLength {
  double steps = 0.0;
  double days = 0.0;  ///< on the clock, interruptions included
  double gpu_hours = 0.0;
  std::optional<double> cost_usd;
  std::optional<double> energy_kwh;  ///< devices only: device_watts · gpu_hours
  std::optional<Goodput> goodput;
};
/// Returns nothing without tokens.
std::optional<RunLength> run_length(const Job& job, double time_s, int devices,
                                    const std::optional<Interruptions>& interruptions);

/// A job whose layout is open.
struct PlanQuestion {
  Job job;            ///< its layout holds what the planner does not choose, and the batch
  SearchSpace space;  ///< an axis that the job's layout section sets has this value only
};

/// Reads a job file whose layout holds global_batch_size and the fixed axes. Throws ConfigError.
PlanQuestion read_question(const nlohmann::json& root, const Origins& origins);

/// The job file of a planned layout: `root` with the layout and nodes of the plan.
nlohmann::json job_file_of(const nlohmann::json& root, const PlannedLayout& planned);
/// The layout section alone.
nlohmann::json layout_section_of(const nlohmann::json& root, const PlannedLayout& planned);

/// Restricts the axes that the job leaves open to what the program can express (write_launch); fixed axes stay as they
/// are. Returns descriptions of what was left out.
std::vector<std::string> keep_launchable(LaunchProgram program, const Job& job, SearchSpace& space);

/// Restricts the search to what the job's stack runs by default: its own schedules, no pipeline if it has none, and
/// with pipelines no more sharding than the stack supports there. Axes that the question fixes stay as they are.
/// Returns descriptions of what was left out.
std::vector<std::string> keep_runnable(const Job& job, bool schedule_given, SearchSpace& space);

/// Explains why no layout answers the question.
struct Refusal {
  std::string missed;                ///< completes "no layout …": "fits", or "meets the deadline" if some fit
  std::vector<std::string> changes;  ///< one sentence each
};

/// Returns how far the closest layout is from fitting and the smallest changes that make a layout fit, one sentence
/// each: freeing an axis that the job fixes ("recompute full fits with 3.1 GiB to spare") or adding nodes ("2 more
/// nodes: …"). If layouts fit but miss the deadline or the budget: the fastest and the cheapest of them, and what would
/// meet the limits.
Refusal nearest_feasible(const Job& job, const SearchSpace& space, const PlanOptions& options,
                         const SearchResult& nothing, const ParallelFor& parallel_for);

/// A rule of thumb of practitioners, and whether a layout follows it.
struct RuleOfThumb {
  std::string rule;
  std::string source;
  bool followed = false;
  std::string here;  ///< the layout's figures
};
std::vector<RuleOfThumb> rules_of_thumb(const Forecast& forecast);

/// Compares a layout's step time under the other expert dispatchers and overlaps, software settings that a plan takes
/// from the job. Returns nothing without expert-parallel ranks.
std::optional<std::string> exchanges_compared(const Forecast& forecast);

}  // namespace flopcast
