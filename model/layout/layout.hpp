#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"

namespace flopcast {

/// The kinds of parallelism whose number of ranks a layout chooses: tensor, context, expert, data, pipeline.
enum class Axis { kTensor, kContext, kExpert, kData, kPipeline };
template <>
struct EnumNames<Axis> {
  static constexpr std::string_view kNames[] = {"tp", "cp", "ep", "dp", "pp"};
};
inline constexpr std::array kAxes = {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData, Axis::kPipeline};
inline constexpr std::size_t kAxisCount = kAxes.size();
static_assert(std::size(EnumNames<Axis>::kNames) == kAxisCount);

/// The axes along which ranks are arranged, innermost first. Expert-parallel ranks are taken from those of dp and cp.
inline constexpr std::array kGridAxes = {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};

/// One value per axis, accessible by the axis's name or by `axis` in loops.
template <class Value>
struct ByAxis {
  Value tp{};
  Value cp{};
  Value ep{};
  Value dp{};
  Value pp{};

  constexpr Value& operator[](Axis axis) { return of(*this, axis); }
  constexpr const Value& operator[](Axis axis) const { return of(*this, axis); }

 private:
  // A table of pointers to members is avoided: GCC 12 merges the tables of equally sized value types and then uses the
  // wrong offsets.
  template <class Self>
  static constexpr auto& of(Self& self, Axis axis) {
    switch (axis) {
      case Axis::kTensor:
        return self.tp;
      case Axis::kContext:
        return self.cp;
      case Axis::kExpert:
        return self.ep;
      case Axis::kData:
        return self.dp;
      case Axis::kPipeline:
        break;
    }
    return self.pp;
  }
};

/// Number of ranks along each axis.
struct AxisSizes : ByAxis<int> {
  constexpr AxisSizes() {
    for (const Axis axis : kAxes) (*this)[axis] = 1;
  }
  AxisSizes& sizes() { return *this; }
  const AxisSizes& sizes() const { return *this; }

  friend bool operator==(const AxisSizes& a, const AxisSizes& b) {
    return std::all_of(kAxes.begin(), kAxes.end(), [&](Axis axis) { return a[axis] == b[axis]; });
  }
};

/// How replicas keep their weights equal.
enum class DataParallel {
  kDdp,           ///< each rank holds whatever the ZeRO stage does not shard; gradients are reduced in buckets
  kFsdp,          ///< weights, gradients and optimizer state sharded over all replicas, gathered layer by layer
  kHsdp,          ///< as fsdp within groups of `shards` ranks, replicated across groups
  kDataParallel,  ///< torch.nn.DataParallel: one process; all traffic passes through its first GPU
  kPs,            ///< parameter servers: on the spare hosts, or on the workers if there are none
  kByteps,        ///< BytePS: servers on spare hosts and workers, with optimal shares
};
template <>
struct EnumNames<DataParallel> {
  static constexpr std::string_view kNames[] = {"ddp", "fsdp", "hsdp", "dataparallel", "ps", "byteps"};
};

/// Arrangement of tensor-parallel ranks: a line, q x q, q x q x d, q x q x q.
enum class TensorParallel { k1d, k2d, k25d, k3d };
template <>
struct EnumNames<TensorParallel> {
  static constexpr std::string_view kNames[] = {"1d", "2d", "2.5d", "3d"};
};

/// How ranks that share a sequence let every query attend to every key. Ring: keys and values circulate among the ranks
/// (Liu et al. 2310.01889). Ulysses: all-to-alls give each rank whole sequences of some heads, and back (2309.14509).
/// Allgather: each rank gathers all keys and values before attention (Llama 3, 2407.21783 §3.3.2). Hierarchical:
/// all-to-alls among `context_inner` neighbours, and a ring over such groups (Megatron Core's a2a+p2p; USP, Fang & Zhao
/// 2405.07719).
enum class ContextParallel { kRing, kUlysses, kAllGather, kHierarchical };
template <>
struct EnumNames<ContextParallel> {
  static constexpr std::string_view kNames[] = {"ring", "ulysses", "allgather", "hierarchical"};
};

enum class Offload { kNone, kOptimizer, kActivations, kAll };
template <>
struct EnumNames<Offload> {
  static constexpr std::string_view kNames[] = {"none", "optimizer", "activations", "all"};
};

/// Gradient compression.
struct Compression {
  enum class Kind { kNone, kQuantized, kTopK, kPowerSgd };
  Kind kind = Kind::kNone;
  int bits = 0;           ///< kQuantized: 8 or 4
  double fraction = 0.0;  ///< kTopK: fraction of the elements that is sent
  int rank = 0;           ///< kPowerSgd

  std::string text() const;  ///< as in a job file: none, 8bit, 4bit, topk:0.01, powersgd:4
};

/// Arrangement of tensor-parallel ranks beyond 1d. Tokens are split into `token_parts` and feature dimensions of
/// activations into q, so activations are split into token_parts · q = tp. Weights of linears are split into
/// `weight_parts`.
struct TensorGrid {
  int q = 1;
  int depth = 1;
  int token_parts = 1;   ///< q, q·depth, q² for 2d, 2.5d, 3d
  int weight_parts = 1;  ///< q², q², q³: 2.5d replicates weights over its depth

  int ranks() const { return token_parts * q; }
};

/// The grid of `ranks` ranks; q = 0 if they do not fill one. Only 2.5d uses `depth`.
TensorGrid tensor_grid(TensorParallel form, int ranks, int depth);
/// Numbers of ranks, up to `most`, that fill a grid.
std::vector<int> tensor_grid_sizes(TensorParallel form, int depth, int most);

/// How layers are distributed over stages if they are not listed explicitly.
enum class StageSplit { kUniform, kBalanced };
template <>
struct EnumNames<StageSplit> {
  static constexpr std::string_view kNames[] = {"uniform", "balanced"};
};

/// ZeRO stages that shard these states, in addition to those of the lower stages.
inline constexpr int kShardsOptimizer = 1;
inline constexpr int kShardsGradients = 2;
inline constexpr int kShardsWeights = 3;

enum class Recompute { kNone, kSelective, kFull };
template <>
struct EnumNames<Recompute> {
  static constexpr std::string_view kNames[] = {"none", "selective", "full"};
};

/// Parts of a block that selective recomputation may repeat, named and defined as in Megatron Core's
/// --recompute-modules (its transformer_config.py): attention between its projections; the norms before attention and
/// MLP, whose outputs are dropped; the MLP of a dense block; router, dispatch, experts and combination; the experts'
/// activation function, whose output is dropped; the shared experts; the up projections of latent attention.
enum class RecomputeModule { kCoreAttention, kLayernorm, kMlp, kMoe, kMoeActivation, kSharedExperts, kLatentUp };
template <>
struct EnumNames<RecomputeModule> {
  static constexpr std::string_view kNames[] = {"core_attn", "layernorm",      "mlp",        "moe",
                                                "moe_act",   "shared_experts", "mla_up_proj"};
};
/// One bit per module.
using RecomputeModules = std::bitset<std::size(EnumNames<RecomputeModule>::kNames)>;
inline RecomputeModules bit_of(RecomputeModule module) {
  return RecomputeModules{1ULL << static_cast<unsigned>(module)};
}
/// Names of the modules that are set.
std::vector<std::string_view> names_in(const RecomputeModules& modules);

/// How the model and the batch are distributed over the devices.
struct Layout : AxisSizes {
  std::optional<int> vpp;  ///< stages per pipeline rank; absent: the schedule's default
  /// Tensor-parallel ranks of an expert; absent: tp. If it differs from tp, expert ranks are folded over the ranks of
  /// tp, cp and dp together: etp neighbours share an expert, and ep such groups hold all experts (Megatron Core's
  /// parallel folding, 2504.14960).
  std::optional<int> etp;
  ContextParallel context_parallel = ContextParallel::kRing;
  std::optional<int> context_inner;  ///< for hierarchical context parallelism: neighbours that exchange heads
  /// Context-parallel ranks (ring and allgather) hold an early and a late part of each sequence, which balances causal
  /// attention; false: consecutive parts in order.
  bool zigzag = true;
  bool sequence_parallel = false;
  int micro_batch_size = 1;
  int global_batch_size = 1;
  std::string schedule;  ///< as written: name, name:V, file:PATH; empty: default
  std::string
      schedule_csv;    ///< rows of the schedule file:NAME, used instead of reading the file; empty: the file is read
  std::string chains;  ///< "0-3,4-7", for a bidirectional schedule given as a file; empty: one chain
  std::optional<int> group_size;
  std::optional<int> accumulation;
  std::optional<int> memory_limit;  ///< microbatches whose activations a rank may hold, for schedules found by search
  std::optional<int> slices;        ///< token slices per microbatch, for schedules that split sequences
  std::vector<int> stage_layers;    ///< empty: as specified by stage_split
  std::optional<StageSplit> stage_split;  ///< absent: uniform for transformers, balanced for layer profiles
  Recompute recompute = Recompute::kNone;
  /// With full recomputation: each tensor-parallel rank keeps 1/tp of a block's input and gathers it again (2104.04473,
  /// section 3.5; ZeRO-R, 1910.02054 §6.1).
  bool partition_checkpoints = false;
  /// Full recomputation only of the first N layers of each stage (or chunk), as Megatron's method "block".
  std::optional<int> recompute_layers;
  /// Full recomputation only of every N-th layer, L/N of a stage's L layers (torchtitan's selective_ac_option N).
  std::optional<int> recompute_every;
  /// For selective recomputation; overrides the stack's choice.
  std::optional<RecomputeModules> recompute_modules;
  int zero = 0;  ///< 0: replicated, 1: optimizer state sharded over dp·cp, 2: gradients too, 3: weights too
  DataParallel data_parallel = DataParallel::kDdp;
  std::optional<int> bucket_mb;       ///< MiB per gradient bucket; absent: 25, but 1 for the first, as in PyTorch
  bool reshard_after_forward = true;  ///< fsdp, hsdp: weights are gathered again for the backward pass
  int shards = 1;                     ///< hsdp: ranks over which one copy of the model is sharded
  int spare_hosts = 0;                ///< ps, byteps: hosts without GPUs that serve parameters
  Compression compression;
  Offload offload = Offload::kNone;
  TensorParallel tensor_parallel = TensorParallel::k1d;
  int tensor_depth = 1;                                      ///< 2.5d: depth d in tp = q²·d
  std::array<Axis, kGridAxes.size()> placement = kGridAxes;  ///< innermost first

  int ranks() const;
  /// m, the number of microbatches each pipeline runs per step.
  int microbatches() const { return global_batch_size / (dp * micro_batch_size); }
  /// Context-parallel ranks hold the same weights, so gradients are summed over dp·cp ranks.
  int replicas() const { return dp * cp; }
  /// Number of a stage's layers that full recomputation repeats.
  int recomputed(int layers) const;
  /// Context-parallel ranks that hold whole sequences of some heads during attention.
  int ulysses_ranks() const;
  int expert_tensor_ranks() const { return etp.value_or(tp); }
  bool folds_experts() const { return expert_tensor_ranks() != tp; }
  /// Number of parts into which the replicas split each of the model's states.
  int weight_shards() const;
  int gradient_shards() const;
  int optimizer_shards() const;
  bool offloads_optimizer() const { return offload == Offload::kOptimizer || offload == Offload::kAll; }
  bool offloads_activations() const { return offload == Offload::kActivations || offload == Offload::kAll; }
};

/// "none", "selective (layernorm, mlp)", "full (5 layers per stage)".
std::string recompute_text(const Layout& layout);

/// Number of transformer layers in each of `stages` stages, as even as possible. Remaining layers go to the stages
/// after the first, one each, then to the first, and to the last stage last: the first holds the most activations, the
/// last the head.
std::vector<int> even_stage_layers(int layers, int stages);

}  // namespace flopcast
