// What a build without MPI or CUDA says in their place.
#include "base/text/error.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/launch/prepared_run.hpp"
#include "realrun/rendezvous/meeting.hpp"

namespace flopcast::realrun {

#ifndef FLOPCAST_HAS_MPI
int launch_on_mpi(const std::vector<std::string>& /*arguments*/) {
  throw EnvironmentError(
      "flopcast-run was built without MPI, and so has --backend threads only\n"
      "  help: on Debian install openmpi-bin and libopenmpi-dev, then configure with -DFLOPCAST_WITH_MPI=ON and build");
}

std::optional<std::string> tell_by_mpi(int /*rank*/, int /*ranks*/, const std::string& /*given*/) {
  return std::nullopt;
}
#endif

#ifndef FLOPCAST_HAS_CUDA
namespace {

// What is wrong with the job is wrong with or without GPUs, and told first.
int refuse_gpus(const LaunchOptions& options) {
  check_for_gpus(options, prepare_run(options));
  throw EnvironmentError(
      "flopcast-run was built without CUDA, and so has --backend threads and mpi only\n"
      "  help: configure with -DFLOPCAST_WITH_CUDA=ON where nvcc is (CUDA 12.5 or later) and build");
}

}  // namespace

int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& /*threads*/) {
  return refuse_gpus(options);
}

int launch_on_nccl(const LaunchOptions& options, const std::atomic<int>* /*interruption*/) {
  return refuse_gpus(options);
}
#endif

}  // namespace flopcast::realrun
