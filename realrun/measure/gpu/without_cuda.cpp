#include "model/error/error.hpp"
#include "realrun/measure/gpu/measured_gpu.hpp"

namespace flopcast {

std::unique_ptr<MeasuredGpu> open_measured_gpu() {
  throw EnvironmentError(
      "flopcast-measure was built without CUDA: configure with -DFLOPCAST_WITH_CUDA=ON where nvcc is (CUDA 12.5 or "
      "later) and build");
}

}  // namespace flopcast
