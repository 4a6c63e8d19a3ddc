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

/// Laws of a researcher in the place of the cost model's own. Each is told what ours says; an empty one is ours.
/// Left out: what follows from them (memory, what is sent) and costs that are no operator and no message, such as the
/// optimizer and the host's launches.
struct CostLaws {
  /// A pass ("forward", "input_gradient", "weight_gradient") of an operator for one microbatch on one device.
  std::function<Seconds(std::string_view op, std::string_view pass, Seconds ours)> operator_time = {};
  /// A collective ("all_reduce" …) of `bytes` as nccl-tests prints them, or a message ("send") between two devices.
  std::function<Seconds(std::string_view kind, Bytes bytes, const GroupPlacement& group, Seconds ours)> network_time =
      {};
};

/// FLOPs of fused attention's backward pass over those of its forward pass: five products instead of two.
inline constexpr double kAttentionBackwardWork = 2.5;

/// The rate that the linears of `training` multiply at on `device` at best, and MFU is a share of: the format's peak,
/// or that of 4 bits with fp8_recipe nvfp4, where the device has one.
FlopsPerSecond product_peak(const Device& device, const Training& training);

/// The time of operators on one device.
///
/// GEMM  t = launch + max(waves · 2·bm·bn·(k + k0) / (peak/SM · e · e_tile), bytes / (s · HBM)), the best of six
///       tile shapes bm x bn; waves = ceil(tiles / SM): a partly filled last wave costs as much as a full one,
///       unless a measured device says otherwise (GemmKernel::wave_share). Small grids may split k over up to four
///       tiles. k0 = 200, in weight gradients 60, stands for the prologue and epilogue of a tile, s = 0.85 for the
///       share of the bandwidth that operand streams reach, e is the device's gemm_efficiency (of that precision). A
///       device with a gemm_kernel of its own (a CPU) has one tile, its own k0 and s, and adds the two times up where
///       it packs operands before it multiplies. Source of the form: CUTLASS's tile and wave model; constants in
///       compute.cpp.
///       Products of 8-bit operands have the same e of a doubled peak, operands of one byte and k0 = 790: filling a
///       tile takes as long as in 16 bits, and partial sums are moved to fp32 registers as the kernel goes. 790 is what
///       the first published tables of deepseek-ai/DeepGEMM ask for (M 4096: 590 TFLOP/s at k = 512, 990 at 1536; 16 of
///       18 products within 9 %). Kernels that scale inside the product reach less of e: 0.88 by blocks, 0.7 by rows
///       (TransformerEngine docs/features/low_precision_training; torchao).
/// Casts bytes / (HBM * memory_efficiency): read and written once, too large for what the L2 cache would keep.
/// Fused attention  FLOPs / (peak · flash efficiency); backward has kAttentionBackwardWork times the forward FLOPs
///                  (Dao 2307.08691 §4.1).
///                  With operands of 8 bits 1.24 times as fast (compute.cpp).
/// Recipe nvfp4     products at the peak of 4 bits where the device tells one, else at that of 8; the same e,
///                   unless the device has one of its own.
/// Memory bound     bytes / (HBM · memory_efficiency) + a launch per kernel; 0.7 of the bytes where a kernel reads what
///                  the one before it wrote, which is then partly in the L2 cache.
/// Left out: the host when it cannot launch as fast as the device runs; stage_costs adds it pass by pass.
class ComputeModel {
 public:
  /// The stack's own attention kernels replace the device's efficiencies where it names its generation. `laws` may be
  /// null, and outlives the model.
  ComputeModel(const Device& device, Precision precision, const Stack& stack = {},
               std::optional<Fp8Recipe> recipe = std::nullopt, const CostLaws* laws = nullptr);

  const CostLaws* laws() const { return laws_; }

  /// `output_bytes` is what is written per element of C, plus what is read when the product is added to it.
  Seconds gemm(const GemmShape& shape, double output_bytes, bool low_precision = false) const;
  /// The product of a weight gradient, [h, tokens] · [tokens, h']. On A100 it lasts as with k0 = 60: the profiled T_W
  /// of 1.5B and 6.2B models, 9.34 and 19.93 ms (Qi et al. 2401.10241, appendix), ask for 40 and 80. Why is not known;
  /// it is assumed of all GPUs whose products nobody measured.
  Seconds weight_gradient(const GemmShape& shape, double output_bytes, bool low_precision = false) const;
  Seconds memory_bound(Bytes moved, int kernels) const;
  /// bytes / (HBM · adam_efficiency) + a launch: Adam's update of the parameters that move so much.
  Seconds adam_update(Bytes moved) const;
  Seconds fused_attention(Flops flops, bool backward, bool low_precision = false) const;
  /// Hopper and Ada multiply 8-bit operands that both run along the sum, so that an input gradient needs the weight
  /// transposed (NVIDIA/TransformerEngine 2.x, is_non_tn_fp8_gemm_supported).
  bool takes_one_layout_in_8_bits() const;
  /// Of the bytes of a kernel that reads what the one before it wrote, the share that goes to memory.
  double share_from_memory(bool reads_fresh) const;
  /// By how much heads of a width that tensor cores cannot load slow down batched products.
  double misalignment(const GemmShape& shape) const;

 private:
  Seconds multiply(const GemmShape& shape, double output_bytes, bool low_precision, const GemmKernel& kernel) const;
  /// Where the linears are in 8 bits all else is computed in 16.
  FlopsPerSecond peak_of(Precision precision) const;
  Precision wide_precision() const { return precision_ == Precision::kFp8 ? Precision::kBf16 : precision_; }

  const Device& device_;
  Precision precision_;
  const CostLaws* laws_;
  double clock_ = 1.0;  // of products and attention, where power is limited
  FlashEfficiency flash_;
  double scaled_share_ = 1.0;  // of gemm_efficiency, where kernels scale inside the product or are early ones
  bool in_4_bits_ = false;     // what is multiplied in 8 bits otherwise
};

/// What a GEMM has to do on a device: `busy` is what its longest-busy multiprocessor could have computed meanwhile at
/// the rate of the best tile, waves · 2·bm·bn·(k + k0) / e_tile; `moved` is what operands and result stream.
struct GemmWork {
  Flops busy;
  Bytes moved;
};
GemmWork gemm_work(const Device& device, Precision precision, const GemmShape& shape, double output_bytes);

/// The passes of one operator for one microbatch, by the model's laws.
struct OperatorTimes {
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
};
OperatorTimes operator_times(const Operator& op, const ComputeModel& compute, const Training& training);

}  // namespace flopcast
