#pragma once

#include <optional>
#include <string>

namespace flopcast::realrun {

/// What the process of rank 0 gives to all processes that mpirun or srun started together, `ranks` of them; nothing
/// where MPI has not started as many, or when built without it. MPI is begun and ended by the call, which all of them
/// make, once.
std::optional<std::string> tell_by_mpi(int rank, int ranks, const std::string& given);

}  // namespace flopcast::realrun
