#pragma once

#include <nlohmann/json.hpp>

#include "model/hardware/precision.hpp"
#include "realrun/device/arithmetic.hpp"
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

/// Throws ConfigError for what GPU ranks cannot do: compression, token slices, emulated compute, heads wider than 128,
/// fp16 and fp8; and for another number of ranks than --one-gpu says. Returns how their products are computed.
GemmPrecision check_for_gpus(const LaunchOptions& options, const PreparedRun& run);
std::string_view name_of(GemmPrecision precision);

}  // namespace flopcast::realrun
