#include "realrun/compute/cuda/gpu.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/cuda_device.hpp"
#include "realrun/compute/cuda/matrix_products.hpp"
#include "realrun/compute/cuda/runtime.hpp"

namespace flopcast::realrun::cuda {

namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// CUDA reads both variables at initialisation. Streams that share a connection to the GPU wait for each other, and the
// default of eight is used up by the streams of a single rank. A kernel loaded at its first launch may wait for running
// kernels, which may wait for other ranks (CUDA programming guide, Lazy Loading, Concurrent Execution). The kernel of a
// product is known only when cuBLASLt launches it, so all kernels are loaded at the start, at a cost in time and
// memory.
void configure_cuda_environment() {
  constexpr const char* kConnections = "CUDA_DEVICE_MAX_CONNECTIONS";
  const char* given = std::getenv(kConnections);
  // Other programs ask users to set one connection, with which a rank would wait for itself.
  if (given == nullptr || std::strtol(given, nullptr, 10) < kMostConnections) {
    setenv(kConnections, std::to_string(kMostConnections).c_str(), 1);
  }
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

void require_driver() {
  configure_cuda_environment();
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) return;  // stays loaded: CUDA needs it anyway
  throw EnvironmentError(
      "no NVIDIA driver was found: libcuda.so.1 is not on this machine\n  help: in a container, pass the GPU through "
      "(docker run --gpus all); without a GPU, use --backend threads");
}

class CudaRank : public GpuRank {
 public:
  CudaRank(const Streams& streams, DeviceClock& clock, std::chrono::milliseconds patience,
           std::shared_ptr<CublasLt> library, const ProductSettings& settings, GemmPrecision precision)
      : device_(streams, clock, patience),
        products_(make_cublaslt_products(std::move(library), device_.stream(Queue::kCompute), settings)),
        kernels_(make_cuda_kernels(device_, *products_, precision)) {}

  ComputeDevice& device() override { return device_; }
  Queues& queues() override { return device_; }
  Kernels<float>& kernels() override { return *kernels_; }
  bool stuck() const override { return device_.stuck(); }
  void* stream(Queue queue) override { return device_.stream(queue); }

 private:
  CudaDevice device_;
  std::unique_ptr<MatrixProducts> products_;
  std::unique_ptr<Kernels<float>> kernels_;
};

class SharedGpu : public Gpu {
 public:
  SharedGpu(int index, int ranks, Partition wanted, GemmPrecision precision, std::chrono::milliseconds patience)
      : info_(open_gpu(index)),
        partition_(ranks == 1 ? Partition::kWhole : wanted),
        precision_(precision_on(info_, precision)),
        patience_(patience) {
    library_ = load_cublaslt();
    info_.cublaslt_version = version_of(*library_);
    clock_ = std::make_unique<DeviceClock>();
    multiprocessors_ = info_.multiprocessors;
    if (partition_ != Partition::kGreen) return;
    green_ = split_gpu(ranks, kQueues);
    if (green_.parts.empty()) {
      partition_ = Partition::kStreams;
      return;
    }
    multiprocessors_ = green_.parts.front().multiprocessors;
    if (green_.timed_together) return;
    for (const GreenPart& part : green_.parts) part_clocks_.push_back(std::make_unique<DeviceClock>(part.idle));
  }

  const GpuInfo& info() const override { return info_; }
  Partition partition() const override { return partition_; }
  int multiprocessors_per_rank() const override { return multiprocessors_; }
  const std::string& refusal() const override { return green_.refusal; }
  bool has_one_clock() const override { return partition_ != Partition::kGreen || green_.timed_together; }
  void synchronise_clock(Ticks offset) override { clock_->synchronise(offset); }

  std::unique_ptr<GpuRank> make_rank(int rank, int held) override {
    // The current GPU is a per-thread setting.
    check(cudaSetDevice(info_.index), "cudaSetDevice");
    ProductSettings settings;
    settings.tf32 = precision_ == GemmPrecision::kTf32;
    if (partition_ == Partition::kGreen || held > 0) settings.multiprocessors = std::max(1, multiprocessors_ - held);
    DeviceClock& clock = has_one_clock() ? *clock_ : *part_clocks_.at(static_cast<std::size_t>(rank));
    return std::make_unique<CudaRank>(streams_of(rank), clock, patience_, library_, settings, precision_);
  }

 private:
  Streams streams_of(int rank) const {
    Streams streams{};
    for (std::size_t queue = 0; queue < streams.size(); ++queue) {
      if (partition_ == Partition::kGreen) {
        streams[queue] = green_.parts.at(static_cast<std::size_t>(rank)).streams.at(queue);
      } else {
        streams[queue] = make_stream(static_cast<Queue>(queue));
      }
    }
    return streams;
  }

  GpuInfo info_;
  Partition partition_ = Partition::kWhole;
  GemmPrecision precision_;
  std::chrono::milliseconds patience_;
  std::shared_ptr<CublasLt> library_;
  std::unique_ptr<DeviceClock> clock_;
  GreenParts green_;
  std::vector<std::unique_ptr<DeviceClock>> part_clocks_;
  int multiprocessors_ = 0;
};

}  // namespace

int count_gpus() {
  require_driver();
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());
  const char* reason = result == cudaSuccess ? "the driver shows none" : cudaGetErrorString(result);
  throw EnvironmentError(fmt::format(
      "no GPU can be used: {}\n  help: nvidia-smi lists the GPUs; CUDA_VISIBLE_DEVICES may hide them", reason));
}

GpuInfo open_gpu(int index) {
  const int count = count_gpus();
  if (index >= count) {
    throw EnvironmentError(fmt::format("GPU {} was requested; visible GPUs: {}", index, count));
  }
  check(cudaSetDevice(index), "cudaSetDevice");
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  if (properties.major < 8) {
    throw EnvironmentError(fmt::format("GPU {}, {}, has compute capability {}.{}: 8.0 or later is needed", index,
                                       properties.name, properties.major, properties.minor));
  }
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  GpuInfo info;
  info.name = properties.name;
  info.index = index;
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_capability = 10 * properties.major + properties.minor;
  info.memory_bytes = properties.totalGlobalMem;
  info.driver_version = version_text(driver);
  info.runtime_version = version_text(runtime);
  return info;
}

std::unique_ptr<Gpu> share_gpu(int index, int ranks, Partition wanted, GemmPrecision precision,
                               std::chrono::milliseconds patience) {
  return std::make_unique<SharedGpu>(index, ranks, wanted, precision, patience);
}

ToolRange::~ToolRange() {
  if (open_) nvtxRangePop();
}

void ToolRange::begin(const std::string& name) {
  if (open_) nvtxRangePop();
  nvtxRangePushA(name.c_str());
  open_ = true;
}

}  // namespace flopcast::realrun::cuda
