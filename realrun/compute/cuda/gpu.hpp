// What the rest of flopcast-run sees of CUDA: no header of CUDA is needed here.
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
  std::string driver_version;  ///< of CUDA that the driver can do
  std::string runtime_version;
  std::string cublaslt_version;
};

/// GPUs of this machine that may be used. Throws EnvironmentError that says what is missing: driver, GPU.
int count_gpus();
/// Makes the GPU the calling thread's. Throws EnvironmentError when it cannot be used.
GpuInfo open_gpu(int index);

/// What products are computed in where the GPU does not do what was asked for: bf16 for fp8 below compute capability
/// 8.9.
inline GemmPrecision precision_on(const GpuInfo& gpu, GemmPrecision wanted) {
  constexpr int kFirstWithFp8 = 89;
  return wanted == GemmPrecision::kFp8 && gpu.compute_capability < kFirstWithFp8 ? GemmPrecision::kBf16 : wanted;
}

/// How ranks share a GPU.
enum class Partition {
  kWhole,    ///< one rank has it all
  kStreams,  ///< their streams compete for all of it
  kGreen,    ///< each has multiprocessors of its own (green contexts)
};

/// One rank's machine. Used from the rank's own threads; destroyed before the GPU.
class GpuRank : public Interface {
 public:
  virtual ComputeDevice& device() = 0;
  virtual Queues& queues() = 0;
  virtual Kernels<float>& kernels() = 0;
  /// Whether somebody has waited for it in vain: what would wait for it again, its destructor too, never returns.
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
  /// Why it is not the partition that was asked for; empty when it is.
  virtual const std::string& refusal() const = 0;
  /// Whether times of different ranks come from one clock; else each part has its own, compared with the host's.
  virtual bool has_one_clock() const = 0;
  /// `held`: multiprocessors that products leave free, for kernels which wait for other ranks beside them.
  virtual std::unique_ptr<GpuRank> make_rank(int rank, int held = 0) = 0;
  /// Compares the GPU's clock with the host's. From now on times are the host's plus `offset`, by which the other
  /// processes go too. Not while ranks record times.
  virtual void synchronise_clock(Ticks offset) = 0;
};

/// Queues that CUDA has to the GPU at most (CUDA_DEVICE_MAX_CONNECTIONS): streams beyond share them, and wait for each
/// other.
inline constexpr int kMostConnections = 32;

/// Throws EnvironmentError. kGreen falls back to kStreams where the driver refuses. Whoever waits for the GPU longer
/// than `patience` gets an EnvironmentError; zero: has no limit.
std::unique_ptr<Gpu> share_gpu(int index, int ranks, Partition wanted, GemmPrecision precision,
                               std::chrono::milliseconds patience = std::chrono::milliseconds(0));

/// A range of NVIDIA's tools (NVTX) that goes on until the next one begins. Costs nothing where no tool listens.
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
