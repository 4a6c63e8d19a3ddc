#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/compute/cuda/matrix_products.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/measure/cuda/works.hpp"
#include "realrun/measure/measure_gpu.hpp"

namespace flopcast::realrun::cuda {

namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// A machine without a GPU is reported in one line, because the help for a run does not apply to a calibration.
GpuInfo open_first_gpu() {
  try {
    return open_gpu(0);
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(first_line(error.what()));
  }
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, 0), "cudaDeviceGetAttribute");
  return value;
}

// A call of CUDA or NCCL that takes longer never returns: loading libraries, creating communicators and the longest
// messages take less.
constexpr std::chrono::seconds kLongestCall{20};

// No destructor may run: it would wait for whatever is stuck. Every sample has been written to its file by now.
[[noreturn]] void leave(const std::string& what) {
  std::fputs(fmt::format("\nerror: {}: the GPU does not respond after {} s; earlier measurements are kept\n", what,
                         kLongestCall.count())
                 .c_str(),
             stderr);
  constexpr int kEnvironmentFailed = 4;
  std::_Exit(kEnvironmentFailed);
}

/// Ends the process if it exists for too long.
class Guard {
 public:
  explicit Guard(const std::string& what) : watchdog_(kLongestCall, [what] { leave(what); }) {}

 private:
  Watchdog watchdog_;
};

class GuardedWork : public QueuedWork {
 public:
  GuardedWork(std::string what, std::unique_ptr<QueuedWork> work) : what_(std::move(what)), work_(std::move(work)) {}

  QueuedTime run(int times, int neighbours) override {
    const Guard guard(what_);
    return work_->run(times, neighbours);
  }

 private:
  std::string what_;
  std::unique_ptr<QueuedWork> work_;
};

class CudaBench : public MeasuredGpu {
 public:
  CudaBench() : info_(open_first_gpu()), library_(load_cublaslt()), stream_(new_stream()), other_(new_stream()) {
    const Guard guard("the start");
    ProductSettings settings;
    settings.tf32 = true;
    products_ = make_cublaslt_products(library_, stream_, settings);
    other_products_ = make_cublaslt_products(library_, other_, settings);
    cache_bytes_ = static_cast<std::size_t>(std::max(0, attribute(cudaDevAttrL2CacheSize)));
    take_memory();
    describe();
  }
  CudaBench(const CudaBench&) = delete;
  CudaBench& operator=(const CudaBench&) = delete;
  ~CudaBench() override {
    const Guard guard("the end");
    messages_.reset();
    products_.reset();
    other_products_.reset();
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    cudaFree(memory_);
  }

  const GpuFacts& facts() const override { return facts_; }

  PreparedWork prepare(const SampleKey& key) override {
    const Guard guard(key.text());
    settle("before " + key.text());
    try {
      std::unique_ptr<QueuedWork> work = make(key);
      work->run(1, 1);
      return {std::make_unique<GuardedWork>(key.text(), std::move(work)), {}};
    } catch (const EnvironmentError& error) {
      const std::string refusal = first_line(error.what());
      settle(fmt::format("after {}: {}", key.text(), refusal));
      return {nullptr, refusal};
    }
  }

 private:
  // The previous sample may have failed at any point. Continues if the GPU works; otherwise further samples are
  // impossible.
  static void settle(const std::string& when) {
    static_cast<void>(cudaGetLastError());
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaDeviceSynchronize(), (when + ": cudaDeviceSynchronize").c_str());
  }

  std::unique_ptr<QueuedWork> make(const SampleKey& key) {
    QueuedWorkload work = queued(key, {stream_, memory_, lane_bytes_, products_.get()});
    if (!key.beside) return std::make_unique<TimedWork>(std::move(work));
    return std::make_unique<TimedWork>(
        std::move(work),
        queued(neighbour_of(key), {other_, memory_ + lane_bytes_, other_bytes_, other_products_.get()}));
  }

  QueuedWorkload queued(const SampleKey& key, const Lane& lane) {
    if (!is_message(key.kind)) return {lane.stream, make_work(key, lane, cache_bytes_), {}};
    FLOPCAST_CHECK(messages_ != nullptr);
    return messages_->make(key);
  }

  SampleKey neighbour_of(const SampleKey& key) const {
    constexpr double kBytes = 256.0 * 1024 * 1024;
    SampleKey neighbour;
    neighbour.kind = *key.beside;
    if (neighbour.kind == SampleKind::kGemm) {
      constexpr int kSide = 4096;
      neighbour.shape = SampleShape{kSide, kSide, kSide};
      neighbour.dtype = "bf16";
      return neighbour;
    }
    const bool reduces = collective_of(neighbour.kind) == CollectiveKind::kAllReduce;
    if (reduces || neighbour.kind == SampleKind::kChannelCopy) {
      neighbour.bytes = kBytes;
      neighbour.channels = key.channels;
      if (reduces) neighbour.ranks = facts_.gpus;
      return neighbour;
    }
    throw EnvironmentError(fmt::format("cannot measure an overlap with {}", name_of(neighbour.kind)));
  }

  // Allocates once, so that no later allocation waits for the GPU; leaves enough for libraries and messages.
  void take_memory() {
    std::size_t available = 0;
    std::size_t all = 0;
    check(cudaMemGetInfo(&available, &all), "cudaMemGetInfo");
    constexpr std::size_t kMost = std::size_t{10} << 30U;
    constexpr std::size_t kAlignment = 4096;
    const std::size_t taken = std::min(kMost, available / 2) / kAlignment * kAlignment;
    void* address = nullptr;
    check(cudaMalloc(&address, taken), "cudaMalloc");
    memory_ = static_cast<std::byte*>(address);
    lane_bytes_ = taken / 4 * 3 / kAlignment * kAlignment;
    other_bytes_ = taken - lane_bytes_;
  }

  void describe() {
    facts_.name = info_.name;
    facts_.multiprocessors = info_.multiprocessors;
    constexpr int kMajor = 10;
    facts_.compute_capability =
        kMajor * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
    facts_.memory_bytes = static_cast<double>(info_.memory_bytes);
    facts_.workspace_bytes = static_cast<double>(lane_bytes_);
    facts_.libraries = {{"cuda_driver", info_.driver_version},
                        {"cuda_runtime", info_.runtime_version},
                        {"cublaslt", version_of(*library_)}};
    for (const auto& [name, which] :
         {std::pair{"multiprocessors", cudaDevAttrClockRate}, {"memory", cudaDevAttrMemoryClockRate}}) {
      constexpr double kKilohertz = 1e-3;
      const int rate = attribute(which);
      if (rate > 0) facts_.clocks_mhz[name] = kKilohertz * rate;
    }
    describe_node(count_gpus());
  }

  void describe_node(int gpus) {
    if (gpus < 2) {
      facts_.no_messages = "only one GPU is visible on this node";
      return;
    }
    try {
      messages_ = std::make_unique<NcclMessages>(load_nccl());
      facts_.libraries["nccl"] = messages_->version();
      facts_.gpus = gpus;
    } catch (const EnvironmentError& error) {
      messages_.reset();
      facts_.no_messages = first_line(error.what());
    }
  }

  GpuInfo info_;
  std::shared_ptr<CublasLt> library_;
  cudaStream_t stream_;
  cudaStream_t other_;
  std::unique_ptr<MatrixProducts> products_;
  std::unique_ptr<MatrixProducts> other_products_;
  std::unique_ptr<NcclMessages> messages_;
  std::byte* memory_ = nullptr;
  std::size_t lane_bytes_ = 0;
  std::size_t other_bytes_ = 0;
  std::size_t cache_bytes_ = 0;
  GpuFacts facts_;
};

}  // namespace

}  // namespace flopcast::realrun::cuda

namespace flopcast {

std::unique_ptr<MeasuredGpu> open_measured_gpu() {
  return std::make_unique<realrun::cuda::CudaBench>();
}

}  // namespace flopcast
