#pragma once

#include <atomic>

#include "realrun/launch/command_line.hpp"
#include "realrun/transport/threads/run_threads.hpp"

namespace flopcast::realrun {

/// All ranks of the job on the first GPU, as threads of this process. Returns the exit code. Throws ConfigError and
/// EnvironmentError, which says so when flopcast-run was built without CUDA.
int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& threads);

/// A rank of the job on a GPU with NCCL: as one of the processes that a launcher started, or after forking them.
int launch_on_nccl(const LaunchOptions& options, const std::atomic<int>* interruption);

}  // namespace flopcast::realrun
