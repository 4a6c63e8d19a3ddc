#include <chrono>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime_api.h>
#include "realrun/compute/cuda/launch.hpp"
#include "realrun/device/device.hpp"
#include "tests/realrun/emulated_cuda/emulation.hpp"

struct CUstream_st {
  int unused = 0;
};
struct CUevent_st {
  flopcast::Ticks time = 0;
};

namespace {

thread_local int current_device = 0;

// Memory is poisoned with NaNs, to detect reads before the first write.
cudaError_t allocate(void** address, std::size_t bytes) {
  constexpr int kNan = 0xff;
  *address = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (*address == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*address, kNan, bytes);
  return cudaSuccess;
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the emulation";
}
const char* cudaGetErrorName(cudaError_t /*error*/) {
  return "emulated";
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int /*device*/) {
  *value = flopcast::emulated::shared_limit();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return allocate(address, bytes);
}
cudaError_t cudaFree(void* address) {
  std::free(address);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned /*flags*/) {
  return allocate(address, bytes);
}
cudaError_t cudaFreeHost(void* address) {
  return cudaFree(address);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t /*stream*/) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t /*stream*/) {
  return allocate(address, bytes);
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t /*stream*/) {
  return cudaFree(address);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return priority > 0 || priority < -5 ? cudaErrorInvalidValue : cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t event, unsigned /*flags*/) {
  // Every call completes before it returns: awaited events have been recorded.
  return event->time == 0 ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t /*stream*/) {
  event->time = flopcast::realrun::host_clock();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t /*event*/) {
  return flopcast::emulated::events_are_held() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = static_cast<float>(static_cast<double>(to->time - from->time) * 1e-9);
  return cudaSuccess;
}

namespace flopcast::realrun::cuda {

cudaError_t spin(std::int64_t /*nanoseconds*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}

}  // namespace flopcast::realrun::cuda
