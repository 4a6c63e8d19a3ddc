#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/config/document.hpp"
#include "planner/search/search.hpp"

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

}  // namespace flopcast
