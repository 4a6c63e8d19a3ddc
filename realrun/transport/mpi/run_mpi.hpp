#pragma once

#include <chrono>
#include <functional>

#include "realrun/transport/mpi/mpi_transport.hpp"

namespace flopcast::realrun {

struct MpiOptions {
  /// How long a rank waits for another before the run is given up.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

/// Runs `body` once in each process, each a rank of the run. Called by all processes. When a rank throws, or waits
/// longer than it has patience, EnvironmentError names it and the action it was in, in every process that gets to know:
/// the run is over, and so is MPI (Processes::end). A rank that does not come back from a computation or from MPI for
/// more than twice the patience, unnoticed by others, says so and ends the process with exit code 4.
void run_mpi(Processes& processes, const MpiOptions& options, const std::function<void(MpiTransport&)>& body);

}  // namespace flopcast::realrun
