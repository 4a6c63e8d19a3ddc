// CUDA as the rest of flopcast-run sees it: this header needs no CUDA header.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "realrun/device/arithmetic.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun::cuda {

/// A GPU and the libraries that run on it.
struct GpuInfo {
  std::string name;
  int index = 0;
  int multiprocessors = 0;
  int compute_capability = 0;  ///< 89 for 8.9
  std::size_t memory_bytes = 0;
  std::string driver_version;  ///< newest CUDA version that the driver supports
  std::string runtime_version;
  std::string cublaslt_version;
};

/// Number of usable GPUs of this machine. Throws EnvironmentError naming what is missing: the driver or a GPU.
int count_gpus();
/// Makes this GPU current for the calling thread. Throws EnvironmentError if it cannot be used.
GpuInfo open_gpu(int index);

/// Precision that products use where the GPU does not support the requested one: bf16 instead of fp8 below compute
/// capability 8.9.
inline GemmPrecision precision_on(const GpuInfo& gpu, GemmPrecision wanted) {
  constexpr int kFirstWithFp8 = 89;
  return wanted == GemmPrecision::kFp8 && gpu.compute_capability < kFirstWithFp8 ? GemmPrecision::kBf16 : wanted;
}

/// How ranks share a GPU.
enum class Partition {
  kWhole,    ///< a single rank uses all of it
  kStreams,  ///< streams of all ranks compete for the whole GPU
  kGreen,    ///< each rank has its own multiprocessors (green contexts)
};

/// One rank's device. Used from the rank's own threads; destroyed before the GPU.
class GpuRank : public Interface {
 public:
  virtual ComputeDevice& device() = 0;
  virtual Queues& queues() = 0;
  virtual Kernels<float>& kernels() = 0;
  /// True once a wait for this device has timed out: any further wait, including the destructor's, never returns.
  virtual bool stuck() const = 0;
  /// Stream of a queue (cudaStream_t), for NCCL.
  virtual void* stream(Queue queue) = 0;
};

/// A GPU in use by ranks of this process.
class Gpu : public Interface {
 public:
  virtual const GpuInfo& info() const = 0;
  virtual Partition partition() const = 0;
  /// Multiprocessors of each rank.
  virtual int multiprocessors_per_rank() const = 0;
  /// Why the partition differs from the requested one; empty if it does not.
  virtual const std::string& refusal() const = 0;
  /// True if times of different ranks come from one clock; otherwise each part has its own, compared with the host's.
  virtual bool has_one_clock() const = 0;
  /// `held`: multiprocessors that products leave free for concurrent kernels that wait for other ranks.
  virtual std::unique_ptr<GpuRank> make_rank(int rank, int held = 0) = 0;
  /// Compares the GPU's clock with the host's. From then on times are the host's plus `offset`, the clock that the
  /// other processes use. Must not be called while ranks record times.
  virtual void synchronise_clock(Ticks offset) = 0;
};

/// Most connections between CUDA and a GPU (CUDA_DEVICE_MAX_CONNECTIONS): further streams share them and wait for each
/// other.
inline constexpr int kMostConnections = 32;

/// Throws EnvironmentError. kGreen falls back to kStreams if the driver refuses it. A wait for the GPU that exceeds
/// `patience` throws EnvironmentError; zero means no limit.
std::unique_ptr<Gpu> share_gpu(int index, int ranks, Partition wanted, GemmPrecision precision,
                               std::chrono::milliseconds patience = std::chrono::milliseconds(0));

/// A range for NVIDIA's profilers (NVTX) that lasts until the next one begins. Costs nothing unless a profiler is
/// attached.
class ToolRange {
 public:
  ToolRange() = default;
  ToolRange(const ToolRange&) = delete;
  ToolRange& operator=(const ToolRange&) = delete;
  ~ToolRange();
  void begin(const std::string& name);

 private:
  bool open_ = false;
};

}  // namespace flopcast::realrun::cuda
