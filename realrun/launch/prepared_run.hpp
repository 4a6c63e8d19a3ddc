#pragma once

#include <nlohmann/json.hpp>

#include "realrun/launch/command_line.hpp"
#include "realrun/training/training_plan.hpp"

namespace flopcast::realrun {

/// What the command line asks to run.
struct PreparedRun {
  nlohmann::json job;  ///< file and flags together
  TrainingPlan plan;
};

/// Reads the job. Throws ConfigError.
PreparedRun prepare_run(const LaunchOptions& options);

}  // namespace flopcast::realrun
