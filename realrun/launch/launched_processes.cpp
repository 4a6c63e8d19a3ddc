#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "realrun/launch/launch.hpp"

namespace flopcast::realrun {

int launched_processes() {
  int processes = 1;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(variable);
    int told = 0;
    if (value != nullptr) std::from_chars(value, value + std::strlen(value), told);
    processes = std::max(processes, told);
  }
  return processes;
}

}  // namespace flopcast::realrun
