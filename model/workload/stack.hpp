#pragma once

#include <string>

namespace flopcast {

/// What the training software does, as far as it changes time or memory. A description is data (catalog/stacks/*.json):
/// software vintage is worth 8 to 18 % of a step, more than any hardware constant.
struct Stack {
  std::string name;
  std::string description;
  int vocab_divisor = 1;  ///< Megatron's make-vocab-size-divisible-by
  bool flash_attention = false;
  bool fused_bias_dropout_add = false;       ///< one kernel for bias, dropout and residual after attention and MLP
  bool fused_gradient_accumulation = false;  ///< the weight-gradient GEMM adds into the fp32 gradient itself
  double gradient_bytes = 4.0;               ///< per parameter, of the buffer that microbatches accumulate into
  bool blocking_sends = true;                ///< pipeline transfers occupy the sender's compute stream
  bool scatter_gather_transfers =
      false;  ///< without sequence parallelism: each TP rank sends 1/tp, an all-gather follows
  bool overlap_gradient_reduction = false;       ///< gradient buckets are reduced during the last backward pass
  bool overlap_tp_with_weight_gradient = false;  ///< backward TP collectives run beside the weight-gradient GEMM
  /// What tools such as nvidia-smi show beyond the tensors: CUDA context, communication buffers, fragmentation.
  double memory_overhead_gib = 0.0;
};

}  // namespace flopcast
