#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "model/enum_names.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// How 8-bit operands get their scales (TransformerEngine common/recipe, torchao float8): from the amax of earlier
/// steps (delayed); from the current tensor (tensorwise in torchao, current in TransformerEngine); per block of 128;
/// per row; per block of 32 (OCP MX) or 16 (NVFP4), which Blackwell's tensor cores apply.
enum class Fp8Recipe { kDelayed, kTensorwise, kCurrent, kBlockwise, kRowwise, kMxfp8, kNvfp4 };
template <>
struct EnumNames<Fp8Recipe> {
  static constexpr std::string_view kNames[] = {"delayed", "tensorwise", "current", "blockwise",
                                                "rowwise", "mxfp8",      "nvfp4"};
};

/// Extent of CUDA graphs: none, attention and the operators around it, or the whole step.
enum class CudaGraphs { kNone, kScoped, kFull };
template <>
struct EnumNames<CudaGraphs> {
  static constexpr std::string_view kNames[] = {"none", "scoped", "full"};
};

/// Generation of the fused attention kernels. FlashAttention 1 and 2 are written for Ampere and also run on Hopper; 3
/// and cuDNN's are written for the device itself.
enum class FlashKernels { k1, k2, k3, kCudnn };
template <>
struct EnumNames<FlashKernels> {
  static constexpr std::string_view kNames[] = {"1", "2", "3", "cudnn"};
};

/// The ranks that agree on the largest magnitudes of 8-bit tensors with delayed scaling, in one all-reduce after each
/// pass of a stage: none; those that share a tensor, the tp and cp ranks (Megatron Core's tp_only_amax_red); or all
/// that hold the same stages, including data-parallel ranks (Megatron Core's default).
enum class AmaxReduction { kNone, kTensor, kReplicas };
template <>
struct EnumNames<AmaxReduction> {
  static constexpr std::string_view kNames[] = {"none", "tensor", "replicas"};
};

enum class SelectiveRecompute { kAttention, kOperators };
template <>
struct EnumNames<SelectiveRecompute> {
  static constexpr std::string_view kNames[] = {"attention", "operators"};
};

/// How routed tokens reach the ranks of their experts and return. alltoall: every copy of a token separately (GShard
/// 2006.16668 §2.2). allgather: every token to every rank, which selects its own, and a reduce-scatter back. deepep,
/// hybridep: once to each node that has one of its experts, and from there once to each rank (DeepSeek-V3 2412.19437
/// §3.2.2). With hybridep the host learns the experts' row counts after the tokens have arrived, with the others
/// before.
enum class ExpertDispatcher { kAlltoall, kAllgather, kDeepep, kHybridep };
template <>
struct EnumNames<ExpertDispatcher> {
  static constexpr std::string_view kNames[] = {"alltoall", "allgather", "deepep", "hybridep"};
};

/// Computation that overlaps with the exchange of routed tokens: none; the passes of another microbatch in the opposite
/// direction (Megatron Core's overlap_moe_expert_parallel_comm), optionally including its delayed weight gradients;
/// DualPipe's pairs of passes.
enum class ExpertOverlap { kNone, k1f1b, k1f1bDelayed, kDualpipe };
template <>
struct EnumNames<ExpertOverlap> {
  static constexpr std::string_view kNames[] = {"none", "1f1b", "1f1b_delayed", "dualpipe"};
};

/// How a rank launches the GEMMs of its experts: one launch each (TransformerEngine's GroupedLinear), or one for all
/// (CUTLASS, DeepGEMM, torch._grouped_mm).
enum class GroupedKernel { kPerExpert, kOne };
template <>
struct EnumNames<GroupedKernel> {
  static constexpr std::string_view kNames[] = {"per_expert", "one"};
};

/// Operators that run as one kernel, where an eager framework has one kernel per arithmetic operation. kCasts: in fp8
/// training, norms, activations and attention write 8 bits directly.
enum class FusedOperator { kNorm, kRotary, kActivation, kLoss, kCasts };
template <>
struct EnumNames<FusedOperator> {
  static constexpr std::string_view kNames[] = {"norm", "rotary", "activation", "loss", "casts"};
};
inline constexpr std::size_t kFusedOperators = 5;

/// Fractions of the peak that fused attention reaches, counting half the FLOPs for causal masks.
struct FlashEfficiency {
  double forward = 0.0;
  double backward = 0.0;
};

/// The behaviour of the training software that affects time or memory. Descriptions are data (catalog/stacks/*.json):
/// the software version accounts for 8 to 18 % of a step, more than any hardware constant.
struct Stack {
  std::string name;
  std::string description;
  std::string based_on;   ///< the stack of whose software this is a version; its own name if none
  int vocab_divisor = 1;  ///< Megatron's make-vocab-size-divisible-by
  bool flash_attention = true;
  bool fused_bias_dropout_add = false;  ///< one kernel for bias, dropout and residual after attention and MLP
  /// The fused softmax kernel processes this many rows of scores together; if a rank's heads and samples are not a
  /// multiple of it, scale, mask, cast and softmax run as separate kernels.
  int fused_softmax_group = 1;
  bool fused_gradient_accumulation = false;  ///< the weight-gradient GEMM accumulates directly into the fp32 gradient
  double gradient_bytes = 4.0;               ///< per parameter, of the buffer in which microbatches accumulate
  double optimizer_gradient_bytes = 0.0;     ///< per parameter, of a copy of the gradients kept by the optimizer
  bool keeps_pass_gradients = false;  ///< the gradients of a pass are kept in addition to the accumulation buffer
  bool blocking_sends = true;         ///< pipeline transfers block the sender's compute stream
  /// Time that device and host wait for each other after a transfer (torch.cuda.synchronize), after which the next pass
  /// is launched onto an idle device; added to every transfer.
  Seconds transfer_synchronization;
  /// Time that host and device wait while the output of a gather of sharded weights is allocated; 0 if communication
  /// buffers are allocated only once.
  Seconds gather_allocation;
  bool scatter_gather_transfers =
      false;  ///< without sequence parallelism: each TP rank sends 1/tp, followed by an all-gather
  bool overlap_gradient_reduction = false;       ///< gradient buckets are reduced during the last backward pass
  bool overlap_tp_with_weight_gradient = false;  ///< backward TP collectives overlap with the weight-gradient GEMM
  /// Tensor-parallel collectives are split into tp pieces that overlap with the GEMM that consumes or produces them
  /// (TransformerEngine's user buffers), in the forward pass too.
  bool overlap_tp_in_pieces = false;
  bool overlap_parameter_gather = false;  ///< with sharded optimizer state: overlaps with the first forward passes
  /// With sharded optimizer state (ZeRO 1), every rank still sums all gradients in one all-reduce after the backward
  /// pass, and updates its share.
  bool reduces_whole_gradients = false;
  /// With sharded optimizer state, updated weights are gathered with one collective per parameter, in one group call
  /// that spreads them over NCCL's channels.
  bool gathers_each_parameter = false;
  /// Balanced stages are split by GEMM parameters (split_by_parameters) instead of by time.
  bool balances_by_parameters = false;
  double reduce_bytes = 0.0;            ///< of a gradient sent between replicas; 0: gradient_bytes
  double moment_bytes = 4.0;            ///< of each of Adam's moments
  std::optional<Fp8Recipe> fp8_recipe;  ///< default for jobs in fp8
  AmaxReduction amax_reduction = AmaxReduction::kNone;
  bool fp8_parameters = false;   ///< fp8 only: weights are gathered in 8 bits
  bool fp8_attention = false;    ///< fp8 only: fused attention multiplies 8-bit operands
  bool fp8_activations = false;  ///< fp8 only: saved inputs of activation functions are cast to 8 bits
  /// fp8 only: speed of GEMMs on Blackwell with the libraries of this stack, relative to cuBLAS 12.9 and later.
  double fp8_on_blackwell = 1.0;
  bool fp8_gathers = false;  ///< tensor-parallel ranks also gather activations in 8 bits
  /// A compiler (torch.compile) generates and fuses element-wise kernels.
  bool compile = false;
  std::array<bool, kFusedOperators> fused = {true, true, true, false, false};  ///< by FusedOperator
  /// What selective recomputation repeats: the attention core (Korthikanti et al. 2205.05198 §5), or all element-wise
  /// operators and every second GEMM (torchtitan's "selective op", the policies of SimpleFSDP and FSDP2).
  SelectiveRecompute selective_recompute = SelectiveRecompute::kAttention;
  CudaGraphs cuda_graphs = CudaGraphs::kNone;
  GroupedKernel grouped_kernel = GroupedKernel::kPerExpert;
  ExpertDispatcher experts_dispatcher = ExpertDispatcher::kAlltoall;
  double experts_dispatch_bytes = 0.0;  ///< of an element sent to its expert; 0: the training format
  int experts_node_limit = 0;           ///< number of nodes on which the router may choose a token's experts; 0: all
  /// Absent: the mode of a bidirectional schedule, which is designed for it; none for any other schedule.
  std::optional<ExpertOverlap> overlap_experts;
  std::optional<FlashKernels> flash_kernels;  ///< absent: the device's best
  /// Bytes per token and context feature moved to merge the partial results of a ring, in each step after the first.
  double ring_merge_forward_bytes = 0.0;
  double ring_merge_backward_bytes = 0.0;
  /// NCCL release as 100 · major + minor: 221 is 2.21; 0: unspecified, which has everything except PAT.
  int nccl = 0;
  bool single_pass_norm = true;  ///< false: separate passes for statistics and result, as in norms before 2022
  /// Bytes per score that scale, mask and softmax move in the forward pass if they are not fused with the GEMMs; 0: the
  /// minimum that must be read and written.
  double softmax_forward_bytes = 0.0;
  /// Relative slowdown of an input gradient whose weight gradient is computed later, compared to a combined backward
  /// pass: data that the second pass reads is no longer in a cache and must be kept.
  double split_backward_slowdown = 0.0;
  /// Bytes per logit that the loss moves; the backward pass's include the cast for the GEMMs.
  double loss_forward_bytes = 0.0;
  double loss_backward_bytes = 0.0;
  double loss_saved_bytes = 4.0;  ///< kept per logit until the backward pass: 4 for an fp32 softmax, 2 for a fused loss
  /// Kernels that accumulate fp32 gradients themselves still return a gradient of each linear to the framework, in the
  /// training format and never read: reused by shape within blocks, newly allocated for the logits.
  bool placeholder_gradients = false;
  /// Host time to launch a kernel and a collective; a pass takes at least as long as its launches.
  /// Host times are those of a host of speed 1 (Cluster::host_speed).
  Seconds host_time_per_kernel;
  Seconds host_time_per_collective;
  Seconds host_time_per_microbatch;  ///< batch, broadcasts, launches of embedding, head and loss
  Seconds host_time_per_hand_over;   ///< per transfer between pipeline stages
  Seconds host_time_per_checkpoint;  ///< per recomputed region
  Seconds host_time_per_ring_step;   ///< per layer pass and context-parallel rank, if there are several
  Seconds host_time_per_parameter;   ///< hooks of a gathered parameter tensor, per layer pass (ZeRO 3)
  Seconds host_time_per_step;        ///< optimizer, logging and bookkeeping
  Seconds host_time_per_tensor;      ///< per tensor of the optimizer on a rank, in each step
  /// The launching thread blocks while a tensor-parallel collective crosses nodes: its hops add to the host's time
  /// instead of overlapping with it.
  bool host_waits_for_hops = false;
  /// Additional time of each tensor-parallel collective, per rank, if pipeline neighbours are on other nodes. Observed,
  /// with unknown cause: the launching thread may share its cores with the network's.
  Seconds collective_stall;
  /// Additional time of each pipeline transfer between nodes in some runs, regardless of its size: a state of software
  /// or fabric that no job key describes. It raises the upper end of the interval but not the forecast.
  Seconds hand_over_stall;
  /// Efficiency of this software's attention kernels by generation, if they differ from the device's best.
  std::map<std::string, FlashEfficiency, std::less<>> flash_efficiency;
  /// Memory shown by tools such as nvidia-smi beyond the tensors: CUDA context, communication buffers, fragmentation.
  double memory_overhead_gib = 0.0;
  /// Memory reserved by the framework's allocator beyond its tensors, as a fraction of the layers' activations, whose
  /// freed blocks fit no other tensors (torch.cuda.memory_reserved versus memory_allocated).
  double allocator_slack = 0.0;

  /// Set for runs on flopcast's own backend (realrun), which computes no gradient norm and, with sharded optimizer
  /// state, sums a tied table by shares. Not a job key.
  bool for_realrun = false;

  double reduced_gradient_bytes() const { return reduce_bytes > 0.0 ? reduce_bytes : gradient_bytes; }
  /// A compiler fuses every operator except the casts, which follow the fp8 recipe.
  bool fuses(FusedOperator op) const {
    return (compile && op != FusedOperator::kCasts) || fused[static_cast<std::size_t>(op)];
  }
};

}  // namespace flopcast
