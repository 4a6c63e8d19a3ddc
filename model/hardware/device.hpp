#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// The number format of matrix multiplications.
enum class Precision { kFp32, kTf32, kFp16, kBf16, kFp8 };
template <>
struct EnumNames<Precision> {
  static constexpr std::string_view kNames[] = {"fp32", "tf32", "fp16", "bf16", "fp8"};
};

inline constexpr int kPrecisionCount = 5;
/// Beside them in a device's figures: what recipe nvfp4 of fp8 training multiplies in.
inline constexpr std::string_view kFp4 = "fp4";

/// Bytes of a weight or activation element: 4 for fp32 and tf32, 2 for fp16 and bf16. fp8 keeps weights and activations
/// in two bytes and casts per GEMM, as Transformer Engine does.
inline Bytes element_size(Precision precision) {
  return Bytes(precision == Precision::kFp32 || precision == Precision::kTf32 ? 4.0 : 2.0);
}

/// NCCL tunes itself by the generation of the GPU. It has no constants of their own for Turing and Ada (Volta's and
/// Ampere's are taken), and RCCL's for CDNA are not known: Ampere's are taken.
/// kCpu: the cores of a host; its messages have measured curves or go through host memory.
enum class GpuGeneration { kVolta, kTuring, kAmpere, kAda, kHopper, kBlackwell, kCdna2, kCdna3, kCpu };
template <>
struct EnumNames<GpuGeneration> {
  static constexpr std::string_view kNames[] = {"volta",     "turing", "ampere", "ada", "hopper",
                                                "blackwell", "cdna2",  "cdna3",  "cpu"};
};

/// What a device of a generation is taken to reach where nobody has measured the device itself.
struct DeviceDefaults {
  double gemm_efficiency = 0.0;
  double memory_efficiency = 0.0;
  double flash_forward_efficiency = 0.0;
  double flash_backward_efficiency = 0.0;
  Seconds kernel_launch;
  std::string source;  ///< for job.assumptions
};
const DeviceDefaults& device_defaults(GpuGeneration generation);

/// How the device's matrix library works, where it is not a GPU's (compute.hpp).
struct GemmKernel {
  int tile = 0;                     ///< side of its square tile; zero: the best of a GPU library's six
  double overhead_depth = 200.0;    ///< the k-equivalent of filling and draining a tile's pipeline
  double memory_efficiency = 0.85;  ///< share of the memory bandwidth operand streams reach; above 1 in a cache
  bool overlapped = true;           ///< operands stream while it multiplies; a CPU core packs them first
  /// What the empty places of a last wave of tiles cost, as a share of full ones: 1 where all multiprocessors work in
  /// step, towards 0 where the tiles that are left are divided among all of them (stream-K, Osama 2301.03598).
  double wave_share = 1.0;
  /// overhead_depth of weight gradients; a device whose depth was measured has that one.
  double weight_gradient_depth = 60.0;
};

/// One accelerator: what its datasheet says, and how much of that its kernels reach.
struct Device {
  std::string name;
  std::string description;
  GpuGeneration generation = GpuGeneration::kAmpere;
  std::array<FlopsPerSecond, kPrecisionCount> peak;  ///< dense, by Precision; zero where the device has none
  Bytes memory_capacity;
  BytesPerSecond memory_bandwidth;
  int multiprocessors = 0;
  double tdp_w = 0.0;           ///< W, thermal design power of the datasheet; zero: not known
  double power_limit_w = 0.0;   ///< below the tdp (nvidia-smi -pl); zero: the tdp
  double boost_clock_hz = 0.0;  ///< that the peaks are stated for; zero: not known
  double clock_hz = 0.0;        ///< locked below it (nvidia-smi -lgc); zero: what the power allows
  FlopsPerSecond peak_fp4;      ///< dense, of products of 4-bit operands with block scales; zero where there are none
  /// Share of the peak that the best GEMM tile sustains inside a training step, clocks and power included.
  double gemm_efficiency = 0.0;
  /// The same by Precision, where one was measured that differs; zero: gemm_efficiency.
  std::array<double, kPrecisionCount> gemm_efficiency_by_precision = {};
  double gemm_efficiency_fp4 = 0.0;  ///< the same, of peak_fp4; zero: as in 8 bits
  /// Share of the memory bandwidth that element-wise kernels reach, over the bytes they must read and write.
  double memory_efficiency = 0.0;
  /// The same of Adam's update, which takes a root and two quotients an element: on a processor's core these bound it,
  /// not the memory. Zero: memory_efficiency.
  double adam_efficiency = 0.0;
  /// Shares of the peak that fused attention reaches on its own (causal-halved) FLOPs.
  double flash_forward_efficiency = 0.0;
  double flash_backward_efficiency = 0.0;
  Seconds kernel_launch;  ///< from one kernel's end to the next one's start on a busy stream
  GemmKernel gemm_kernel;

  /// Of what products and attention reach at the tdp: their clock is what the power allows. Switching takes f·V² and V
  /// goes with f, so f goes with the cube root of what the limit leaves beside the static 0.15 of the tdp. V100 at 450
  /// W (DGX-2H) and 300 W, H100 at 700 W and 500 W are forecast alike with it.
  /// A locked clock bounds them too: clock / boost_clock, or what the power limit leaves where that is less. Left out:
  /// that a device which its tdp holds below its boost clock anyway loses less by a lock, so that the time is an upper
  /// bound; memory and links have clocks of their own.
  double clock_under_limit() const;
  FlopsPerSecond peak_of(Precision precision) const { return peak[static_cast<std::size_t>(precision)]; }
  double gemm_efficiency_of(Precision precision) const {
    const double own = gemm_efficiency_by_precision[static_cast<std::size_t>(precision)];
    return own > 0.0 ? own : gemm_efficiency;
  }
};

}  // namespace flopcast
