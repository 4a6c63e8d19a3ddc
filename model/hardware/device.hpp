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
/// Format name used in addition to these in a device's figures: that of GEMMs under the fp8 recipe nvfp4.
inline constexpr std::string_view kFp4 = "fp4";

/// Bytes per weight or activation element: 4 for fp32 and tf32, 2 for fp16 and bf16. fp8 keeps weights and activations
/// in two bytes and casts them for each GEMM, as Transformer Engine does.
inline Bytes element_size(Precision precision) {
  return Bytes(precision == Precision::kFp32 || precision == Precision::kTf32 ? 4.0 : 2.0);
}

/// NCCL's tuning depends on the GPU generation. It has no separate constants for Turing and Ada (Volta's and Ampere's
/// are used), and RCCL's for CDNA are unknown (Ampere's are used). kCpu: the cores of a host; its messages have
/// measured curves or go through host memory.
enum class GpuGeneration { kVolta, kTuring, kAmpere, kAda, kHopper, kBlackwell, kCdna2, kCdna3, kCpu };
template <>
struct EnumNames<GpuGeneration> {
  static constexpr std::string_view kNames[] = {"volta",     "turing", "ampere", "ada", "hopper",
                                                "blackwell", "cdna2",  "cdna3",  "cpu"};
};

/// Assumed efficiencies of devices of a generation without measurements of their own.
struct DeviceDefaults {
  double gemm_efficiency = 0.0;
  double memory_efficiency = 0.0;
  double flash_forward_efficiency = 0.0;
  double flash_backward_efficiency = 0.0;
  Seconds kernel_launch;
  std::string source;  ///< for job.assumptions
};
const DeviceDefaults& device_defaults(GpuGeneration generation);

/// Behaviour of the device's matrix library if it is not a GPU's (compute.hpp).
struct GemmKernel {
  int tile = 0;                     ///< side of its square tile; zero: the best of a GPU library's six
  double overhead_depth = 200.0;    ///< equivalent steps of k for filling and draining a tile's pipeline
  double memory_efficiency = 0.85;  ///< fraction of the memory bandwidth that operand streams reach; above 1 in a cache
  bool overlapped = true;           ///< operands stream during multiplication; a CPU core packs them first
  /// Cost of the empty places in the last wave of tiles relative to full ones: 1 if all multiprocessors work in
  /// lockstep, near 0 if the remaining tiles are divided among all of them (stream-K, Osama 2301.03598).
  double wave_share = 1.0;
  /// overhead_depth of weight gradients; devices with a measured depth use that instead.
  double weight_gradient_depth = 60.0;
};

/// One accelerator: its datasheet figures, and the fraction of them that its kernels reach.
struct Device {
  std::string name;
  std::string description;
  GpuGeneration generation = GpuGeneration::kAmpere;
  std::array<FlopsPerSecond, kPrecisionCount> peak;  ///< dense, by Precision; zero if unsupported
  Bytes memory_capacity;
  BytesPerSecond memory_bandwidth;
  int multiprocessors = 0;
  double tdp_w = 0.0;           ///< W, thermal design power from the datasheet; zero: unknown
  double power_limit_w = 0.0;   ///< below the TDP (nvidia-smi -pl); zero: the TDP
  double boost_clock_hz = 0.0;  ///< clock for which the peaks are stated; zero: unknown
  double clock_hz = 0.0;        ///< locked below the boost clock (nvidia-smi -lgc); zero: as the power allows
  FlopsPerSecond peak_fp4;      ///< dense, GEMMs of 4-bit operands with block scales; zero if unsupported
  /// Fraction of the peak that the best GEMM tile sustains inside a training step, including clocks and power.
  double gemm_efficiency = 0.0;
  /// Indexed by Precision, where measured separately; zero: gemm_efficiency.
  std::array<double, kPrecisionCount> gemm_efficiency_by_precision = {};
  double gemm_efficiency_fp4 = 0.0;  ///< fraction of peak_fp4; zero: as in 8 bits
  /// Fraction of the memory bandwidth that element-wise kernels reach, counting only bytes they must read and write.
  double memory_efficiency = 0.0;
  /// Likewise for Adam's update, which needs a square root and two divisions per element: on a CPU core these are the
  /// bottleneck, not memory. Zero: memory_efficiency.
  double adam_efficiency = 0.0;
  /// Fractions of the peak that fused attention reaches, counting half the FLOPs for causal masks.
  double flash_forward_efficiency = 0.0;
  double flash_backward_efficiency = 0.0;
  Seconds kernel_launch;  ///< from one kernel's end to the next one's start on a busy stream
  GemmKernel gemm_kernel;

  /// Clock of GEMMs and attention relative to the clock at the TDP, as the power limit allows. Switching takes f·V² and
  /// V is proportional to f, so f follows the cube root of the power that remains after the static 0.15 of the TDP.
  /// This predicts V100 at 450 W (DGX-2H) and 300 W, and H100 at 700 W and 500 W, equally well.
  /// A locked clock limits it too: clock / boost_clock, if that is lower. Not modelled: a device held below its boost
  /// clock by its TDP anyway loses less by a lock, so the time is an upper bound; memory and links have clocks of their
  /// own.
  double clock_under_limit() const;
  FlopsPerSecond peak_of(Precision precision) const { return peak[static_cast<std::size_t>(precision)]; }
  double gemm_efficiency_of(Precision precision) const {
    const double own = gemm_efficiency_by_precision[static_cast<std::size_t>(precision)];
    return own > 0.0 ? own : gemm_efficiency;
  }
};

}  // namespace flopcast
