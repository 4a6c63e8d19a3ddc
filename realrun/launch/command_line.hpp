#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/job/flags.hpp"
#include "realrun/launch/backend.hpp"
#include "realrun/launch/plan_from_job.hpp"

namespace flopcast::realrun {

/// How ranks use GPUs.
struct GpuSettings {
  std::string partition = {};  ///< of virtual GPUs: green or streams; empty: green
  int one_gpu = 0;             ///< processes with NCCL that share the first GPU; 0: each has its own
  std::string store = {};      ///< where processes meet; empty: the launcher's, or a folder of this run
};

/// What flopcast-run was asked for.
struct LaunchOptions {
  std::optional<std::string> job_file;
  std::vector<FlagValue> flags;      ///< of the job, as `flopcast simulate` has them
  const Backend* backend = nullptr;  ///< null: mpi for processes that a launcher started together, threads otherwise
  std::string output;                ///< empty: standard output
  RunSettings settings;
  GpuSettings gpu;
  int warmup = 1;  ///< first steps that no figure counts
  int patience_s = 60;
  std::string help;  ///< to be shown instead of a run, where it was asked for
};

/// Throws ConfigError on bad usage.
LaunchOptions parse_launch_options(const std::vector<std::string>& arguments);
/// False when there is none to show.
bool show_help(const LaunchOptions& options);

}  // namespace flopcast::realrun
