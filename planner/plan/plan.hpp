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

/// Share of the memory that a plan uses by default. The rest absorbs longer samples and library buffers: an assumption,
/// not a measurement.
inline constexpr double kRoomyMemory = 0.95;

/// An error if failures leave the run less than 1 % of the time to train, checked on the fewest GPUs in question, where
/// failures are rarest.
std::optional<Diagnostic> endless_run(const Job& job, const PlanOptions& options);

/// Runs one search: plan(), its parts, or a share of them. Nothing if another process writes the answer.
using Search = std::function<std::optional<SearchResult>(const PlanOptions& options)>;

/// The search of every front end, behind endless_run. Without a `memory_limit` layouts leave room (kRoomyMemory);
/// where none does, those that fit at all are searched, and a note says so. Of layouts that take the same time on as
/// many GPUs the one with least memory stands for all, the first of equals. Then the simplest of those that nobody
/// could measure apart from the best, within 0.2 % of its time, comes first: even stages, few chunks. At most
/// options.search.ranked are left; options.search.memory_limit becomes the one that they were found with.
std::optional<SearchResult> search_with_room(PlanOptions& options, std::optional<double> memory_limit,
                                             const Search& search, std::vector<std::string>& notes);

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

/// A job whose layout is open.
struct PlanQuestion {
  Job job;            ///< layout: what the planner does not choose, and the batch
  SearchSpace space;  ///< what the job's layout section says of an axis is its only value
};

/// Reads a job file whose layout holds global_batch_size and whatever is fixed. Throws ConfigError.
PlanQuestion read_question(const nlohmann::json& root, const Origins& origins);

/// The job file of a planned layout: `root` with its nodes and layout.
nlohmann::json job_file_of(const nlohmann::json& root, const PlannedLayout& planned);
/// The layout section alone.
nlohmann::json layout_section_of(const nlohmann::json& root, const PlannedLayout& planned);

/// Narrows what the job leaves open to what the program can be told (write_launch); what the job fixes stays as it is.
/// Returns what was left out, in words.
std::vector<std::string> keep_launchable(LaunchProgram program, const Job& job, SearchSpace& space);

/// Leaves the search what the job's stack runs by default: its own schedules, no pipeline where it has none, and
/// beside pipelines no more sharding than it has there. Axes that the question fixes stay. In words what is left out,
/// empty where nothing is.
std::vector<std::string> keep_runnable(const Job& job, bool schedule_given, SearchSpace& space);

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
