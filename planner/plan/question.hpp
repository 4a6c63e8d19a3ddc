#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "import/programs/launch.hpp"
#include "model/config/document.hpp"
#include "planner/search/search.hpp"
#include "planner/space/space.hpp"

namespace flopcast {

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

}  // namespace flopcast
