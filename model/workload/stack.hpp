#pragma once

#include <functional>
#include <map>
#include <string>

#include "model/units/quantity.hpp"

namespace flopcast {

/// Shares of the peak that fused attention reaches on its own (causal-halved) FLOPs.
struct FlashEfficiency {
  double forward = 0.0;
  double backward = 0.0;
};

/// What the training software does, as far as it changes time or memory. A description is data (catalog/stacks/*.json):
/// software vintage is worth 8 to 18 % of a step, more than any hardware constant.
struct Stack {
  std::string name;
  std::string description;
  std::string based_on;   ///< the stack whose software this one is a version of; its own name where it is of none
  int vocab_divisor = 1;  ///< Megatron's make-vocab-size-divisible-by
  bool flash_attention = true;
  bool fused_bias_dropout_add = false;  ///< one kernel for bias, dropout and residual after attention and MLP
  /// The stack's softmax kernel takes so many rows of scores at once; where heads and samples of a rank do not come in
  /// such groups, scale, mask, cast and softmax are kernels of their own.
  int fused_softmax_group = 1;
  bool fused_gradient_accumulation = false;  ///< the weight-gradient GEMM adds into the fp32 gradient itself
  double gradient_bytes = 4.0;               ///< per parameter, of the buffer that microbatches accumulate into
  double optimizer_gradient_bytes = 0.0;     ///< per parameter, of a copy of the gradients that the optimizer keeps
  bool keeps_pass_gradients = false;         ///< the gradients of a pass stay beside the buffer that accumulates them
  bool blocking_sends = true;                ///< pipeline transfers occupy the sender's compute stream
  /// Device and host wait for each other after a transfer (torch.cuda.synchronize), and the next pass is launched onto
  /// an idle device: added to every transfer.
  Seconds transfer_synchronization;
  /// Host and device wait while the output of a gather of sharded weights is allocated; 0 where communication buffers
  /// are allocated once.
  Seconds gather_allocation;
  bool scatter_gather_transfers =
      false;  ///< without sequence parallelism: each TP rank sends 1/tp, an all-gather follows
  bool overlap_gradient_reduction = false;       ///< gradient buckets are reduced during the last backward pass
  bool overlap_tp_with_weight_gradient = false;  ///< backward TP collectives run beside the weight-gradient GEMM
  bool single_pass_norm = true;  ///< false: statistics and result in passes of their own, as norms before 2022
  /// Bytes that scale, mask and softmax move per score in the forward pass where they are not fused with the products;
  /// 0: what must be read and written.
  double softmax_forward_bytes = 0.0;
  /// Of an input gradient whose weight gradient is left for later: by what share it takes longer than inside a whole
  /// backward pass. What the second pass reads is no longer in a cache, and has to be kept and found.
  double split_backward_slowdown = 0.0;
  /// Bytes that the loss moves per logit; the backward pass's include the cast for the GEMMs.
  double loss_forward_bytes = 0.0;
  double loss_backward_bytes = 0.0;
  double loss_saved_bytes = 4.0;  ///< kept per logit until the backward pass: 4 an fp32 softmax, 2 a fused loss
  /// Kernels that accumulate fp32 gradients themselves still hand the framework a gradient of each linear, in the
  /// training format and never read: kept by shape for a block, allocated anew for the logits.
  bool placeholder_gradients = false;
  /// The host's time to launch a kernel and a collective; a pass takes no less than its launches.
  Seconds host_time_per_kernel;
  Seconds host_time_per_collective;
  /// What the attention kernels of this software reach, by generation, where they are not the device's best.
  std::map<std::string, FlashEfficiency, std::less<>> flash_efficiency;
  /// What tools such as nvidia-smi show beyond the tensors: CUDA context, communication buffers, fragmentation.
  double memory_overhead_gib = 0.0;
};

}  // namespace flopcast
