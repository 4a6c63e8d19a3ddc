#pragma once

#include <nlohmann/json.hpp>

#include "model/hardware/precision.hpp"
#include "realrun/launch/command_line.hpp"
#include "realrun/training/training_plan.hpp"

namespace flopcast::realrun {

/// What the command line asks to run.
struct PreparedRun {
  nlohmann::json job;  ///< file and flags together
  TrainingPlan plan;
  Precision precision = Precision::kFp32;  ///< of the job; what CPUs do is always fp32
};

/// Reads the job. Throws ConfigError.
PreparedRun prepare_run(const LaunchOptions& options);

}  // namespace flopcast::realrun
