// Replaces the MPI library in programs built without it.
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/rendezvous/meeting.hpp"

namespace flopcast::realrun {

int launch_on_mpi(const std::vector<std::string>& /*arguments*/) {
  throw EnvironmentError(
      "flopcast-run was built without MPI: --backend mpi is not available\n"
      "  help: on Debian install openmpi-bin and libopenmpi-dev, then configure with -DFLOPCAST_WITH_MPI=ON and build");
}

std::optional<std::string> broadcast_by_mpi(int /*rank*/, int /*ranks*/, const std::string& /*given*/) {
  return std::nullopt;
}

}  // namespace flopcast::realrun
