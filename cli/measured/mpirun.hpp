#pragma once

#include <string>
#include <vector>

namespace flopcast {

/// The words that make `mpirun` of Open MPI start a program once for each rank, on this machine or wherever its own
/// settings (OMPI_MCA_…, a hostfile) say; more ranks than cores are fine. As root, containers' usual user, it is told
/// that this is meant. Throws EnvironmentError when it is not there.
std::vector<std::string> mpirun_words(int ranks);

}  // namespace flopcast
