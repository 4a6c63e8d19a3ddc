#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "model/hardware/device.hpp"
#include "model/hardware/network.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

/// User-defined functions that replace the cost model's own times. Each receives the model's time; an empty function
/// keeps it. Not affected: quantities derived from them (memory, bytes sent) and costs that are neither operators nor
/// messages, such as the optimizer and the host's launches.
struct CostOverrides {
  /// Time of one pass ("forward", "input_gradient", "weight_gradient") of an operator for one microbatch on one device.
  std::function<Seconds(std::string_view op, std::string_view pass, Seconds ours)> operator_time = {};
  /// Time of a collective ("all_reduce" …) whose `bytes` are as nccl-tests prints them, or of a message ("send")
  /// between two devices.
  std::function<Seconds(std::string_view kind, Bytes bytes, const GroupPlacement& group, Seconds ours)> network_time =
      {};
};

/// FLOPs of fused attention's backward pass relative to its forward pass: five GEMMs instead of two.
inline constexpr double kAttentionBackwardWork = 2.5;

/// Peak rate of the GEMMs in the linears of `training` on `device`, the reference of MFU: the peak of the format, or of
/// 4 bits with fp8_recipe nvfp4 if the device has one.
FlopsPerSecond product_peak(const Device& device, const Training& training);

/// Time of operators on one device.
///
/// GEMM  t = launch + max(waves · 2·bm·bn·(k + k0) / (peak/SM · e · e_tile), bytes / (s · HBM)), the best of six
///       tile shapes bm x bn; waves = ceil(tiles / SM): a partly filled last wave costs as much as a full one,
///       unless a measured device shows otherwise (GemmKernel::wave_share). Small grids may split k over up to four
///       tiles. k0 models the prologue and epilogue of a tile (200; 60 in weight gradients), s = 0.85 is the fraction
///       of the bandwidth that operand streams reach, and e is the device's gemm_efficiency (for that precision). A
///       device with its own gemm_kernel (a CPU) has one tile shape and its own k0 and s, and adds the two times if
///       it packs operands before multiplying. The form follows CUTLASS's tile and wave model; constants are in
///       compute.cpp.
///       GEMMs with 8-bit operands have the same e of a doubled peak, one-byte operands and k0 = 790: filling a tile
///       takes as long as in 16 bits, and partial sums move to fp32 registers along the way. 790 fits the first
///       published tables of deepseek-ai/DeepGEMM (M 4096: 590 TFLOP/s at k = 512, 990 at 1536; 16 of 18 GEMMs within
///       9 %). Kernels that scale inside the GEMM reach a smaller e: 0.88 of it by blocks, 0.7 by rows
///       (TransformerEngine docs/features/low_precision_training; torchao).
/// Casts bytes / (HBM * memory_efficiency): read and written once, too large to stay in the L2 cache.
/// Fused attention  FLOPs / (peak · flash efficiency); backward has kAttentionBackwardWork times the forward FLOPs
///                  (Dao 2307.08691 §4.1).
///                  With 8-bit operands it is 1.24 times as fast (compute.cpp).
/// Recipe nvfp4     GEMMs at the device's 4-bit peak if it has one, otherwise at the 8-bit peak; the same e, unless
///                  the device has its own for 4 bits.
/// Memory bound     bytes / (HBM · memory_efficiency) + a launch per kernel; 0.7 of the bytes if a kernel reads what
///                  the previous one wrote, which is then partly in the L2 cache.
/// Not modelled here: a host that launches more slowly than the device runs; stage_costs adds it for each pass.
class ComputeModel {
 public:
  /// If the stack specifies attention efficiencies for the device's generation, they replace the device's. `laws` may
  /// be null; otherwise it must outlive the model.
  ComputeModel(const Device& device, Precision precision, const Stack& stack = {},
               std::optional<Fp8Recipe> recipe = std::nullopt, const CostOverrides* laws = nullptr);

  const CostOverrides* laws() const { return laws_; }

  /// `output_bytes` per element of C: bytes written, plus bytes read if the result is accumulated into C.
  Seconds gemm(const GemmShape& shape, double output_bytes, bool low_precision = false) const;
  /// GEMM of a weight gradient, [h, tokens] · [tokens, h']. On A100 it takes as long as with k0 = 60: the profiled T_W
  /// of 1.5B and 6.2B models, 9.34 and 19.93 ms (Qi et al. 2401.10241, appendix), imply 40 and 80. The cause is
  /// unknown; the value is assumed for all GPUs without GEMM measurements.
  Seconds weight_gradient(const GemmShape& shape, double output_bytes, bool low_precision = false) const;
  Seconds memory_bound(Bytes moved, int kernels) const;
  /// bytes / (HBM · adam_efficiency) + a launch: Adam's update of parameters that moves this many bytes.
  Seconds adam_update(Bytes moved) const;
  Seconds fused_attention(Flops flops, bool backward, bool low_precision = false) const;
  /// Hopper and Ada require both 8-bit operands to be contiguous along the summed dimension, so an input gradient needs
  /// the transposed weight (NVIDIA/TransformerEngine 2.x, is_non_tn_fp8_gemm_supported).
  bool takes_one_layout_in_8_bits() const;
  /// Fraction of a kernel's bytes that go to memory if the kernel reads what the previous one wrote.
  double share_from_memory(bool reads_fresh) const;
  /// Slowdown of batched GEMMs whose head width tensor cores cannot load.
  double misalignment(const GemmShape& shape) const;

 private:
  Seconds multiply(const GemmShape& shape, double output_bytes, bool low_precision, const GemmKernel& kernel) const;
  /// If the linears are in 8 bits, everything else is computed in 16.
  FlopsPerSecond peak_of(Precision precision) const;
  Precision wide_precision() const { return precision_ == Precision::kFp8 ? Precision::kBf16 : precision_; }

  const Device& device_;
  Precision precision_;
  const CostOverrides* laws_;
  double clock_ = 1.0;  // relative clock of GEMMs and attention under a power limit
  FlashEfficiency flash_;
  double scaled_share_ = 1.0;  // factor on gemm_efficiency for kernels that scale inside the GEMM and for early kernels
  bool in_4_bits_ = false;     // for GEMMs that would otherwise be in 8 bits
};

/// Work of a GEMM on a device. `busy`: FLOPs that its busiest multiprocessor could have computed in that time at the
/// best tile's rate, waves · 2·bm·bn·(k + k0) / e_tile. `moved`: bytes of operands and result.
struct GemmWork {
  Flops busy;
  Bytes moved;
};
GemmWork gemm_work(const Device& device, Precision precision, const GemmShape& shape, double output_bytes);

/// Passes of one operator for one microbatch, including user-defined times.
struct OperatorTimes {
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
};
OperatorTimes operator_times(const Operator& op, const ComputeModel& compute, const Training& training);

}  // namespace flopcast
