#include "realrun/compute/cuda/device_code.cuh"

namespace flopcast::realrun::cuda {

namespace {

__global__ void spin_for(std::int64_t nanoseconds) {
  unsigned long long start = 0;
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < static_cast<unsigned long long>(nanoseconds));
}

}  // namespace

cudaError_t spin(std::int64_t nanoseconds, cudaStream_t stream) {
  FLOPCAST_LAUNCH(spin_for, 1, 1, 0, stream)(nanoseconds);
  return cudaGetLastError();
}

}  // namespace flopcast::realrun::cuda
