#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/layout/axis.hpp"
#include "model/layout/parallel_forms.hpp"

namespace flopcast {

/// How layers are spread over stages when nobody lists them.
enum class StageSplit { kUniform, kBalanced };
template <>
struct EnumNames<StageSplit> {
  static constexpr std::string_view kNames[] = {"uniform", "balanced"};
};

enum class Recompute { kNone, kSelective, kFull };
template <>
struct EnumNames<Recompute> {
  static constexpr std::string_view kNames[] = {"none", "selective", "full"};
};

/// How the model and the batch are spread over the devices.
struct Layout : AxisSizes {
  std::optional<int> vpp;  ///< stages per pipeline rank; the schedule's default when absent
  ContextParallel context_parallel = ContextParallel::kRing;
  bool sequence_parallel = false;
  int micro_batch_size = 1;
  int global_batch_size = 1;
  std::string schedule;      ///< as written: name, name:V, file:PATH; empty for the default
  std::string schedule_csv;  ///< rows of the schedule file:NAME, in place of the file's; empty: the file is read
  std::string chains;        ///< "0-3,4-7", of a bidirectional schedule in a file; empty: one chain
  std::optional<int> group_size;
  std::optional<int> accumulation;
  std::optional<int> memory_limit;        ///< microbatches' activations that a rank may hold, where a schedule searches
  std::optional<int> slices;              ///< token slices per microbatch, where a schedule cuts sequences
  std::vector<int> stage_layers;          ///< empty: as stage_split says
  std::optional<StageSplit> stage_split;  ///< uniform for transformers, balanced for layer profiles when absent
  Recompute recompute = Recompute::kNone;
  /// With full recomputation: each tensor-parallel rank keeps 1/tp of a block's input and gathers it again (2104.04473,
  /// section 3.5; ZeRO-R, 1910.02054 §6.1).
  bool partition_checkpoints = false;
  int zero = 0;  ///< 0 replicated, 1 optimizer state sharded over dp·cp, 2 gradients too, 3 weights too
  DataParallel data_parallel = DataParallel::kDdp;
  std::optional<int> bucket_mb;       ///< MiB of a gradient bucket; absent: 25, and 1 for the first, as PyTorch does
  bool reshard_after_forward = true;  ///< fsdp, hsdp: weights are gathered again for the backward pass
  int shards = 1;                     ///< hsdp: ranks that share one copy of the model
  int spare_hosts = 0;                ///< ps, byteps: hosts without GPUs that hold parameters
  Compression compression;
  Offload offload = Offload::kNone;
  TensorParallel tensor_parallel = TensorParallel::k1d;
  int tensor_depth = 1;                                      ///< 2.5d: d of tp = q²·d
  std::array<Axis, kGridAxes.size()> placement = kGridAxes;  ///< innermost first

  int ranks() const;
  /// m, the microbatches each pipeline runs per step.
  int microbatches() const { return global_batch_size / (dp * micro_batch_size); }
  /// Context-parallel ranks hold the same weights, so gradients are summed over dp·cp ranks.
  int replicas() const { return dp * cp; }
  /// In how many parts the replicas cut each of the model's states.
  int weight_shards() const;
  int gradient_shards() const;
  int optimizer_shards() const;
  bool offloads_optimizer() const { return offload == Offload::kOptimizer || offload == Offload::kAll; }
  bool offloads_activations() const { return offload == Offload::kActivations || offload == Offload::kAll; }
};

/// Transformer layers of each of `stages` stages: as even as possible. What is left over goes to the stages after the
/// first, one each, and to the last stage last of all: the first holds the most activations, the last the head.
std::vector<int> even_stage_layers(int layers, int stages);

}  // namespace flopcast
