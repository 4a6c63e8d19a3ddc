#include <cstdio>

#include "model/error/error.hpp"
#include "realrun/launch/gpu_launch.hpp"
#include "realrun/launch/gpu_plan.hpp"

namespace flopcast::realrun {

namespace {

// What is wrong with the job is wrong with or without GPUs, and told first.
int refuse(const LaunchOptions& options) {
  if (options.help) {
    std::fputs(launch_help().c_str(), stdout);
    return 0;
  }
  check_for_gpus(options, prepare_run(options));
  throw EnvironmentError(
      "flopcast-run was built without CUDA, and so has --backend threads and mpi only\n"
      "  help: configure with -DFLOPCAST_WITH_CUDA=ON where nvcc is (CUDA 12.5 or later) and build");
}

}  // namespace

int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& /*threads*/) {
  return refuse(options);
}

int launch_on_nccl(const LaunchOptions& options, const std::atomic<int>* /*interruption*/) {
  return refuse(options);
}

}  // namespace flopcast::realrun
