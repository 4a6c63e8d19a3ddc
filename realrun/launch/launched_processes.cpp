#include <algorithm>
#include <cstdlib>

#include "realrun/launch/mpi_launch.hpp"

namespace flopcast::realrun {

int launched_processes() {
  int processes = 1;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr) processes = std::max(processes, std::atoi(value));
  }
  return processes;
}

}  // namespace flopcast::realrun
