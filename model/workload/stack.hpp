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

/// How 8-bit operands get their scales (TransformerEngine common/recipe, torchao float8): by the amax of former steps;
/// of the tensor at hand, tensorwise being torchao's and current TransformerEngine's word; by blocks of 128; by rows;
/// by blocks of 32 (OCP MX) or 16 (NVFP4), which Blackwell's tensor cores read.
enum class Fp8Recipe { kDelayed, kTensorwise, kCurrent, kBlockwise, kRowwise, kMxfp8, kNvfp4 };
template <>
struct EnumNames<Fp8Recipe> {
  static constexpr std::string_view kNames[] = {"delayed", "tensorwise", "current", "blockwise",
                                                "rowwise", "mxfp8",      "nvfp4"};
};

/// What runs as launches of whole graphs: nothing, attention and the pieces around it, or the whole step.
enum class CudaGraphs { kNone, kScoped, kFull };
template <>
struct EnumNames<CudaGraphs> {
  static constexpr std::string_view kNames[] = {"none", "scoped", "full"};
};

/// The generation of the fused attention kernels. FlashAttention 1 and 2 are written for Ampere and run on Hopper as
/// well; 3 and cuDNN's are written for the device at hand.
enum class FlashKernels { k1, k2, k3, kCudnn };
template <>
struct EnumNames<FlashKernels> {
  static constexpr std::string_view kNames[] = {"1", "2", "3", "cudnn"};
};

/// The ranks that agree on the largest magnitudes of 8-bit tensors with delayed scaling, by one all-reduce behind each
/// pass of a stage: none; those of a tensor, which are tp and cp ranks (Megatron Core's tp_only_amax_red); all that
/// hold the same stages, data-parallel ranks included (Megatron Core's default).
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

/// How routed tokens reach the ranks of their experts and come back. alltoall: every copy of a token by itself (GShard
/// 2006.16668 §2.2). allgather: every token to every rank, each of which takes what is its own, and a reduce-scatter
/// back. deepep, hybridep: once to each node that has one of its experts and once to each rank there (DeepSeek-V3
/// 2412.19437 §3.2.2); with hybridep the host learns of the experts' rows when they have arrived, with the others
/// before.
enum class ExpertDispatcher { kAlltoall, kAllgather, kDeepep, kHybridep };
template <>
struct EnumNames<ExpertDispatcher> {
  static constexpr std::string_view kNames[] = {"alltoall", "allgather", "deepep", "hybridep"};
};

/// What runs beside the exchange of routed tokens: nothing; the passes of another microbatch, one direction beside the
/// other (Megatron Core's overlap_moe_expert_parallel_comm), its weight gradients moved there as well; DualPipe's pairs
/// of passes.
enum class ExpertOverlap { kNone, k1f1b, k1f1bDelayed, kDualpipe };
template <>
struct EnumNames<ExpertOverlap> {
  static constexpr std::string_view kNames[] = {"none", "1f1b", "1f1b_delayed", "dualpipe"};
};

/// The products of a rank's experts: a launch each (TransformerEngine's GroupedLinear), or one for all (CUTLASS,
/// DeepGEMM, torch._grouped_mm).
enum class GroupedKernel { kPerExpert, kOne };
template <>
struct EnumNames<GroupedKernel> {
  static constexpr std::string_view kNames[] = {"per_expert", "one"};
};

/// Operators that one kernel does where an eager framework has one for each of their arithmetic operations.
/// kCasts: norms, activations and attention write 8 bits themselves where the training is in fp8.
enum class FusedOperator { kNorm, kRotary, kActivation, kLoss, kCasts };
template <>
struct EnumNames<FusedOperator> {
  static constexpr std::string_view kNames[] = {"norm", "rotary", "activation", "loss", "casts"};
};
inline constexpr std::size_t kFusedOperators = 5;

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
  /// Tensor-parallel collectives cut in tp pieces beside the product that uses or makes them (TransformerEngine's user
  /// buffers), in the forward pass as well.
  bool overlap_tp_in_pieces = false;
  bool overlap_parameter_gather = false;  ///< with sharded optimizer state: beside the first forward passes
  /// With sharded optimizer state (ZeRO 1) every rank still adds up all gradients, by one all-reduce after the
  /// backward pass, and updates its share.
  bool reduces_whole_gradients = false;
  /// With sharded optimizer state: updated weights are gathered by one collective a parameter, in one group call that
  /// spreads them over NCCL's channels.
  bool gathers_each_parameter = false;
  /// Layers that are to be balanced are split by the parameters of products (split_by_parameters), not by time.
  bool balances_by_parameters = false;
  double reduce_bytes = 0.0;            ///< a gradient on its way between replicas; 0: gradient_bytes
  double moment_bytes = 4.0;            ///< of each of Adam's moments
  std::optional<Fp8Recipe> fp8_recipe;  ///< where a job in fp8 says none
  AmaxReduction amax_reduction = AmaxReduction::kNone;
  bool fp8_parameters = false;   ///< of precision fp8: weights are gathered in 8 bits
  bool fp8_attention = false;    ///< of precision fp8: fused attention multiplies 8-bit operands
  bool fp8_activations = false;  ///< of precision fp8: what activations keep of their inputs is cast to 8 bits
  /// Of precision fp8: what products on Blackwell reach with the libraries of this stack, as a share of what they reach
  /// with cuBLAS 12.9 and later.
  double fp8_on_blackwell = 1.0;
  bool fp8_gathers = false;  ///< and so are the activations that tensor-parallel ranks gather
  /// Element-wise kernels are generated by a compiler (torch.compile), which fuses them with each other.
  bool compile = false;
  std::array<bool, kFusedOperators> fused = {true, true, true, false, false};  ///< by FusedOperator
  /// What selective recomputation redoes: the attention core (Korthikanti et al. 2205.05198 §5), or all element-wise
  /// operators and every second product (torchtitan's "selective op", SimpleFSDP's and FSDP2's policies).
  SelectiveRecompute selective_recompute = SelectiveRecompute::kAttention;
  CudaGraphs cuda_graphs = CudaGraphs::kNone;
  GroupedKernel grouped_kernel = GroupedKernel::kPerExpert;
  ExpertDispatcher experts_dispatcher = ExpertDispatcher::kAlltoall;
  double experts_dispatch_bytes = 0.0;  ///< an element on its way to its experts; 0: of the training format
  int experts_node_limit = 0;           ///< nodes that the router may choose experts of a token on; 0: all
  /// Absent: that of a two-way schedule, which is made for it, and none of any other.
  std::optional<ExpertOverlap> overlap_experts;
  std::optional<FlashKernels> flash_kernels;  ///< absent: the device's best
  /// Bytes that joining the parts of a ring moves in each step behind the first, per token and feature of the context.
  double ring_merge_forward_bytes = 0.0;
  double ring_merge_backward_bytes = 0.0;
  /// Release of NCCL, 100 · major + minor: 221 is 2.21; 0: not told, which knows all but PAT.
  int nccl = 0;
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
  /// The launching thread stands still while a tensor-parallel collective goes from node to node: its hops add to the
  /// host's time instead of passing beside it.
  bool host_waits_for_hops = false;
  /// What each tensor-parallel collective takes longer for each of its ranks where a pipeline's neighbours lie on other
  /// nodes. Observed, its cause unknown: the launching thread may share its cores with the network's.
  Seconds collective_stall;
  /// What each of a pipeline's hand-overs between nodes takes longer in some runs, whatever its size: a state of
  /// software or fabric that no key of a job tells. It raises the upper end of the interval and leaves the forecast
  /// alone.
  Seconds hand_over_stall;
  /// What the attention kernels of this software reach, by generation, where they are not the device's best.
  std::map<std::string, FlashEfficiency, std::less<>> flash_efficiency;
  /// What tools such as nvidia-smi show beyond the tensors: CUDA context, communication buffers, fragmentation.
  double memory_overhead_gib = 0.0;
  /// What the framework's allocator reserves beyond its tensors, as a share of the layers' activations, which come and
  /// go in blocks that fit no others (torch.cuda.memory_reserved against memory_allocated).
  double allocator_slack = 0.0;

  /// Priced for flopcast's own backend (realrun), which takes no gradient norm, and with sharded optimizer state adds
  /// up a tied table by shares. No key of a job.
  bool of_own_run = false;

  double reduced_gradient_bytes() const { return reduce_bytes > 0.0 ? reduce_bytes : gradient_bytes; }
  /// A compiler's casts are those of the recipe.
  bool fuses(FusedOperator op) const {
    return (compile && op != FusedOperator::kCasts) || fused[static_cast<std::size_t>(op)];
  }
};

}  // namespace flopcast
