#pragma once

#include "model/hardware/device.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

/// The time of operators on one device.
///
/// GEMM  t = launch + max(waves · 2·bm·bn·(k + k0) / (peak/SM · e · e_tile), bytes / (s · HBM)), the best of six
///       tile shapes bm x bn; waves = ceil(tiles / SM): a partly filled last wave costs as much as a full one. Small
///       grids may split k over up to four tiles. k0 = 200 stands for the prologue and epilogue of a tile, s = 0.85 for
///       the share of the bandwidth that operand streams reach, e is the device's gemm_efficiency. A device with a
///       gemm_kernel of its own (a CPU) has one tile, its own k0 and s, and adds the two times up where it packs
///       operands before it multiplies. Source of the form: CUTLASS's tile and wave model; constants in compute.cpp.
/// Fused attention  FLOPs / (peak · flash efficiency); backward has 2.5 times the forward FLOPs (Dao 2307.08691 §4.1).
/// Memory bound     bytes / (HBM · memory_efficiency) + a launch per kernel.
/// Left out: L2 reuse between kernels, and the host when it cannot launch as fast as the device runs.
class ComputeModel {
 public:
  ComputeModel(const Device& device, Precision precision) : device_(device), precision_(precision) {}

  /// `output_bytes` is what is written per element of C, plus what is read when the product is added to it.
  Seconds gemm(const GemmShape& shape, double output_bytes) const;
  Seconds memory_bound(Bytes moved, int kernels) const;
  Seconds fused_attention(Flops flops, bool backward) const;

 private:
  const Device& device_;
  Precision precision_;
};

/// What a GEMM has to do on a device: `busy` is what its longest-busy multiprocessor could have computed meanwhile at
/// the rate of the best tile, waves · 2·bm·bn·(k + k0) / e_tile; `moved` is what operands and result stream.
struct GemmWork {
  Flops busy;
  Bytes moved;
};
GemmWork gemm_work(const Device& device, Precision precision, const GemmShape& shape, double output_bytes);

/// The passes of one operator for one microbatch.
struct OperatorTimes {
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
};
OperatorTimes operator_times(const Operator& op, const ComputeModel& compute, const Training& training);

}  // namespace flopcast
