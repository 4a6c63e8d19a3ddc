#pragma once

#include <string>
#include <vector>

#include "realrun/launch/plan_from_job.hpp"
#include "realrun/transport/threads/thread_transport.hpp"

namespace flopcast::realrun {

/// Throws ConfigError on bad usage.
LaunchOptions parse_launch_options(const std::vector<std::string>& arguments);
/// False when there is none to show.
bool show_help(const LaunchOptions& options);

/// All ranks of the job on the first GPU, as threads of this process. Returns the exit code. Throws ConfigError and
/// EnvironmentError, which says so when flopcast-run was built without CUDA.
int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& threads);

/// A rank of the job on a GPU with NCCL: as one of the processes that a launcher started, or after forking them. Of
/// `threads` only the interruption counts.
int launch_on_nccl(const LaunchOptions& options, const ThreadOptions& threads);

/// flopcast-run as one of the processes that mpirun or srun started together. Returns the exit code, the same in all of
/// them, of which one has told why it is not 0; after a failure of the run it ends the processes itself. Throws
/// EnvironmentError when built without MPI.
int launch_on_mpi(const std::vector<std::string>& arguments);

}  // namespace flopcast::realrun
