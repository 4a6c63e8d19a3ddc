#include "model/error/error.hpp"
#include "realrun/launch/gpu_launch.hpp"

namespace flopcast::realrun {

int launch_on_nccl(const LaunchOptions& /*options*/, const std::atomic<int>* /*interruption*/) {
  throw EnvironmentError("not yet");
}

}  // namespace flopcast::realrun
