#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/config/job_keys.hpp"
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
  std::vector<FlagValue> flags;  ///< of the job, as `flopcast simulate` has them
  std::string backend;           ///< empty: mpi for processes that a launcher started together, threads otherwise
  std::string output;            ///< empty: standard output
  RunSettings settings;
  GpuSettings gpu;
  int warmup = 1;  ///< first steps that no figure counts
  int patience_s = 60;
  bool help = false;
};

/// Throws ConfigError on bad usage.
LaunchOptions parse_launch_options(const std::vector<std::string>& arguments);
std::string launch_help();

}  // namespace flopcast::realrun
