#include "realrun/compute/cuda/runtime.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "realrun/compute/cuda/cuda_device.hpp"
#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The driver's functions, looked up at run time.
struct Driver {
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDeviceGetDevResource) resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxStreamCreate) create_stream = nullptr;

  Driver() {
    constexpr unsigned kGreenContexts = 12040;
    constexpr unsigned kGreenStreams = 12050;
    find(device, "cuDeviceGet", 2000);
    find(resource, "cuDeviceGetDevResource", kGreenContexts);
    find(split, "cuDevSmResourceSplitByCount", kGreenContexts);
    find(describe, "cuDevResourceGenerateDesc", kGreenContexts);
    find(create, "cuGreenCtxCreate", kGreenContexts);
    find(create_stream, "cuGreenCtxStreamCreate", kGreenStreams);
  }

 private:
  template <class Function>
  void find(Function& function, const char* name, unsigned version) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
    if (result != cudaSuccess || found != cudaDriverEntryPointSuccess) {
      static_cast<void>(cudaGetLastError());
      throw Refusal(fmt::format("the driver lacks {}", name));
    }
    function = reinterpret_cast<Function>(address);
  }
};

void require(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw Refusal(fmt::format("{} failed with {}", call, static_cast<int>(result)));
}

void require(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Refusal(fmt::format("{} failed: {}", call, cudaGetErrorString(result)));
}

cudaStream_t make_stream(const Driver& driver, CUgreenCtx context, Queue queue) {
  CUstream made = nullptr;
  require(driver.create_stream(&made, context, CU_STREAM_NON_BLOCKING, priority_of(queue)), "cuGreenCtxStreamCreate");
  return made;
}

GreenPart make_part(const Driver& driver, CUdevice device, CUdevResource resource, int streams) {
  GreenPart part;
  part.multiprocessors = static_cast<int>(resource.sm.smCount);
  CUdevResourceDesc description = nullptr;
  require(driver.describe(&description, &resource, 1), "cuDevResourceGenerateDesc");
  CUgreenCtx context = nullptr;
  require(driver.create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate");
  for (int stream = 0; stream < streams; ++stream) {
    part.streams.push_back(make_stream(driver, context, static_cast<Queue>(stream)));
  }
  part.idle = make_stream(driver, context, Queue::kCompute);
  return part;
}

/// An event recorded after a kernel on a stream, and waited for.
class TriedEvent {
 public:
  TriedEvent() { require(cudaEventCreate(&event_), "cudaEventCreate"); }
  TriedEvent(const TriedEvent&) = delete;
  TriedEvent& operator=(const TriedEvent&) = delete;
  ~TriedEvent() { cudaEventDestroy(event_); }

  void record(cudaStream_t stream) {
    constexpr std::int64_t kNanoseconds = 1000;
    require(spin(kNanoseconds, stream), "a kernel in a part");
    require(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  void hold_up(cudaStream_t stream) const { require(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  void wait() const { require(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  cudaError_t time_until(const TriedEvent& later) const {
    float milliseconds = 0.0F;
    return cudaEventElapsedTime(&milliseconds, event_, later.event_);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Runs kernels, and checks that events of one part can order another part and be timed within a part. Returns true if
// they can also be timed against those of other parts and of the whole GPU.
bool verify_parts(const std::vector<GreenPart>& parts) {
  const cudaStream_t first = parts.front().streams.front();
  const cudaStream_t last = parts.back().streams.back();
  TriedEvent start;
  TriedEvent of_other_part;
  TriedEvent end;
  start.record(first);
  start.hold_up(last);
  of_other_part.record(last);
  of_other_part.hold_up(first);
  end.record(first);
  end.wait();
  require(start.time_until(end), "cudaEventElapsedTime");
  cudaStream_t whole = nullptr;
  require(cudaStreamCreateWithFlags(&whole, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  TriedEvent of_whole;
  of_whole.record(whole);
  of_whole.wait();
  const bool together = start.time_until(of_other_part) == cudaSuccess && start.time_until(of_whole) == cudaSuccess;
  static_cast<void>(cudaGetLastError());
  require(cudaStreamDestroy(whole), "cudaStreamDestroy");
  return together;
}

// Granularity of a part in multiprocessors. If neither header nor driver reports it, uses the driver documentation's
// value for the architecture.
unsigned granularity_of([[maybe_unused]] const CUdevResource& whole, int ordinal) {
#if CUDA_VERSION >= 13000
  if (whole.sm.minSmPartitionSize > 0) return std::max(whole.sm.minSmPartitionSize, whole.sm.smCoscheduledAlignment);
#endif
  constexpr int kHopper = 9;
  int major = 0;
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal), "cudaDeviceGetAttribute");
  return major < kHopper ? 4 : 8;
}

// Makes the parts as large as possible. Multiprocessors are grouped in clusters that cannot be split: the driver may
// provide fewer parts of a size than the GPU's number of multiprocessors suggests.
std::vector<CUdevResource> split_evenly(const Driver& driver, const CUdevResource& whole, unsigned count, int ordinal) {
  const unsigned granularity = granularity_of(whole, ordinal);
  std::vector<CUdevResource> parts(count);
  for (unsigned each = whole.sm.smCount / count / granularity * granularity; each > 0; each -= granularity) {
    unsigned made = count;
    CUdevResource rest = {};
    require(driver.split(parts.data(), &made, &whole, &rest, 0, each), "cuDevSmResourceSplitByCount");
    if (made >= count) return parts;
  }
  throw Refusal(fmt::format("{} multiprocessors cannot be split into {} parts of at least {}", whole.sm.smCount, count,
                            granularity));
}

}  // namespace

GreenParts split_gpu(int count, int streams) {
  GreenParts result;
  try {
    const Driver driver;
    int ordinal = 0;
    require(cudaGetDevice(&ordinal), "cudaGetDevice");
    CUdevice device = 0;
    require(driver.device(&device, ordinal), "cuDeviceGet");
    CUdevResource whole = {};
    require(driver.resource(device, &whole, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
    const std::vector<CUdevResource> split = split_evenly(driver, whole, static_cast<unsigned>(count), ordinal);
    for (const CUdevResource& resource : split) result.parts.push_back(make_part(driver, device, resource, streams));
    result.timed_together = verify_parts(result.parts);
  } catch (const Refusal& refusal) {
    result.parts.clear();
    result.refusal = refusal.what();
  }
  return result;
}

}  // namespace flopcast::realrun::cuda
