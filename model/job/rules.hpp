#pragma once

#include <optional>

#include "model/enum_names.hpp"
#include "model/job.hpp"

namespace flopcast {

/// What one layout must obey beside the ranges of its keys. The reader of a job asks one layout and tells the values;
/// the planner asks millions, a few axes at a time, and counts by rule.
enum class LayoutRule {
  kProfileGrid,
  kGridModel,
  kProfileReplication,
  kProfileOffload,
  kProfileTensor,
  kGrid,
  kGridCut,
  kHeads,
  kKeyValueHeads,
  kMlp,
  kExpertWidth,
  kContextAlone,
  kContextInner,
  kProfileContext,
  kSequence,
  kUlyssesHeads,
  kOneProcess,
  kNoExperts,
  kExperts,
  kExpertReplicas,
  kExpertTensor,
  kExpertFolding,
  kProfileSequence,
  kSequenceGrid,
  kSequenceTokens,
  kProfileRecompute,
  kRecomputeParts,
  kCheckpoints,
  kGridBatch,
  kCompression,
  kProfileSharding,
  kShards,
};
template <>
struct EnumNames<LayoutRule> {
  static constexpr std::string_view kNames[] = {
      "a layer profile cannot be split over a grid of tensor_parallel",
      "grids of tensor_parallel are modelled without experts, latent attention and fine-tuning",
      "a layer profile cannot communicate inside its passes",
      "a layer profile cannot offload activations",
      "a layer profile cannot be split over tp",
      "tp does not fill the grid of tensor_parallel",
      "the grid of tensor_parallel does not cut heads, MLP and hidden size",
      "tp does not divide the attention heads",
      "tp does not divide the key/value heads",
      "tp does not divide the MLP width",
      "tp does not divide the width of the experts",
      "a context_parallel other than ring needs cp above 1",
      "context_inner is of context_parallel hierarchical, and cp a multiple of it beyond itself",
      "a layer profile cannot be split over cp",
      "cp, with zigzag 2 cp, does not divide the sequence length",
      "ulysses: cp (hierarchical: context_inner) does not divide the heads of a tensor rank",
      "dataparallel is one process on one node, without other parallelism",
      "ep needs a model with experts",
      "ep does not divide the experts",
      "ep does not divide the replicas dp cp",
      "etp does not divide tp",
      "an etp other than tp needs sequence parallelism, and no grid and no hsdp",
      "a layer profile has no sequence parallelism",
      "sequence parallelism is of tensor_parallel 1d",
      "tp does not divide the tokens of a rank",
      "a layer profile has no selective recomputation",
      "recompute_layers or recompute_every needs recompute full, recompute_modules selective, and a transformer",
      "partition_checkpoints needs recompute full and tp above 1 without sequence parallelism",
      "the grid does not cut the microbatch",
      "compression needs zero 0",
      "a layer profile cannot shard gradients",
      "shards does not divide the replicas",
  };
};

/// The rule that the axes break, if any. What is no argument (the forms of the axes) is job.layout's.
/// Of what no search chooses: tensor_parallel, then data_parallel, then offload.
std::optional<LayoutRule> broken_form_rule(const Job& job);
std::optional<LayoutRule> broken_tensor_rule(const Job& job, int tp);
std::optional<LayoutRule> broken_context_rule(const Job& job, int tp, int cp);
std::optional<LayoutRule> broken_replica_rule(const Job& job, int model_ranks);
std::optional<LayoutRule> broken_expert_rule(const Job& job, int tp, int dp, int cp, int ep);
std::optional<LayoutRule> broken_sequence_rule(const Job& job, int tp, int cp, bool sequence_parallel);
std::optional<LayoutRule> broken_recompute_rule(const Job& job, int tp, bool sequence_parallel, Recompute recompute);
std::optional<LayoutRule> broken_batch_rule(const Job& job, int tp, int micro_batch_size);
std::optional<LayoutRule> broken_sharding_rule(const Job& job, int dp, int cp, int ep, int zero);

/// The heads of a tensor-parallel rank that ulysses hands out: of queries, and of keys and values.
struct RankHeads {
  int queries = 0;
  int keys = 0;
  bool shared_by(int cp) const { return queries % cp == 0 && keys % cp == 0; }
};
RankHeads rank_heads(const Transformer& model, int tp);

/// The equal parts that cp ranks cut a sequence in: two each with zigzag.
inline int sequence_parts(const Layout& layout, int cp) {
  return layout.zigzag ? 2 * cp : cp;
}

/// Groups of `shards` neighbours must not cut those of the other axes.
bool shards_fit(int shards, int dp, int cp, int ep);

}  // namespace flopcast
