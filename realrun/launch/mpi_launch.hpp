#pragma once

#include <string>
#include <vector>

namespace flopcast::realrun {

/// How many processes mpirun or srun started together with this one, by the variables that Open MPI, MPICH and Slurm
/// set; 1 when none did.
int launched_processes();

/// flopcast-run as one of these processes. Returns the exit code, the same in all of them, of which one has told why it
/// is not 0; after a failure of the run it ends the processes itself. Throws EnvironmentError when built without MPI.
int launch_on_mpi(const std::vector<std::string>& arguments);

}  // namespace flopcast::realrun
