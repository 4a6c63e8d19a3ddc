#include "realrun/compute/cuda/green_contexts.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "realrun/compute/cuda/launch.hpp"

namespace flopcast::realrun::cuda {

namespace {

class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The driver's functions, asked for when the program runs.
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
      throw Refusal(fmt::format("the driver has no {}", name));
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

GreenPart make_part(const Driver& driver, CUdevice device, CUdevResource resource, int streams) {
  GreenPart part;
  part.multiprocessors = static_cast<int>(resource.sm.smCount);
  CUdevResourceDesc description = nullptr;
  require(driver.describe(&description, &resource, 1), "cuDevResourceGenerateDesc");
  CUgreenCtx context = nullptr;
  require(driver.create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate");
  for (int stream = 0; stream < streams; ++stream) {
    CUstream made = nullptr;
    require(driver.create_stream(&made, context, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
    part.streams.push_back(made);
  }
  return part;
}

// Kernels run, and events of one part order and time the other.
void try_out(const std::vector<GreenPart>& parts) {
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  require(cudaEventCreate(&start), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  constexpr std::int64_t kNanoseconds = 1000;
  const cudaStream_t first = parts.front().streams.front();
  const cudaStream_t last = parts.back().streams.back();
  require(spin(kNanoseconds, first), "a kernel in a part");
  require(cudaEventRecord(start, first), "cudaEventRecord");
  require(cudaStreamWaitEvent(last, start, 0), "cudaStreamWaitEvent");
  require(spin(kNanoseconds, last), "a kernel in a part");
  require(cudaEventRecord(end, last), "cudaEventRecord");
  require(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0.0F;
  require(cudaEventElapsedTime(&milliseconds, start, end), "cudaEventElapsedTime");
  require(cudaEventDestroy(start), "cudaEventDestroy");
  require(cudaEventDestroy(end), "cudaEventDestroy");
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
    const unsigned granularity = std::max({1U, whole.sm.minSmPartitionSize, whole.sm.smCoscheduledAlignment});
    const auto wanted = static_cast<unsigned>(count);
    const unsigned each = whole.sm.smCount / wanted / granularity * granularity;
    if (each == 0) {
      throw Refusal(
          fmt::format("{} multiprocessors make no {} parts of {} or more", whole.sm.smCount, count, granularity));
    }
    std::vector<CUdevResource> split(wanted);
    unsigned made = wanted;
    CUdevResource rest = {};
    require(driver.split(split.data(), &made, &whole, &rest, 0, each), "cuDevSmResourceSplitByCount");
    if (made < wanted) throw Refusal(fmt::format("the driver made {} of {} parts", made, count));
    for (const CUdevResource& resource : split) result.parts.push_back(make_part(driver, device, resource, streams));
    try_out(result.parts);
  } catch (const Refusal& refusal) {
    result.parts.clear();
    result.refusal = refusal.what();
  }
  return result;
}

}  // namespace flopcast::realrun::cuda
