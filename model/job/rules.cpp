#include "model/job/rules.hpp"

namespace flopcast {

namespace {

std::optional<LayoutRule> broken_unless(bool kept, LayoutRule rule) {
  return kept ? std::nullopt : std::optional<LayoutRule>(rule);
}

std::optional<LayoutRule> broken_grid_rule(const Job& job, int tp) {
  const TensorGrid grid = tensor_grid(job.layout.tensor_parallel, tp, job.layout.tensor_depth);
  if (grid.q == 0) return LayoutRule::kGrid;
  const int parts = grid.weight_parts / grid.q;
  const Transformer& model = job.model;
  const bool cut =
      model.heads % grid.q == 0 && model.kv_heads % grid.q == 0 && model.ffn % parts == 0 && model.hidden % parts == 0;
  return broken_unless(cut, LayoutRule::kGridCut);
}

}  // namespace

std::optional<LayoutRule> broken_form_rule(const Job& job) {
  const Layout& layout = job.layout;
  const bool grid = layout.tensor_parallel != TensorParallel::k1d;
  if (!job.profile)
    return broken_unless(!grid || (!job.model.experts && !job.model.latent && job.model.mtp_layers == 0 &&
                                   !job.training.finetune && !job.training.preference),
                         LayoutRule::kGridModel);
  if (grid) return LayoutRule::kProfileGrid;
  const bool between_updates = layout.data_parallel == DataParallel::kDdp ||
                               layout.data_parallel == DataParallel::kPs ||
                               layout.data_parallel == DataParallel::kByteps;
  if (!between_updates) return LayoutRule::kProfileReplication;
  return broken_unless(!layout.offloads_activations(), LayoutRule::kProfileOffload);
}

std::optional<LayoutRule> broken_tensor_rule(const Job& job, int tp) {
  if (job.profile) return broken_unless(tp == 1, LayoutRule::kProfileTensor);
  if (job.layout.tensor_parallel != TensorParallel::k1d) return broken_grid_rule(job, tp);
  const Transformer& model = job.model;
  if (model.heads % tp != 0) return LayoutRule::kHeads;
  if (model.kv_heads % tp != 0) return LayoutRule::kKeyValueHeads;
  if (model.ffn % tp != 0) return LayoutRule::kMlp;
  if (!model.experts) return std::nullopt;
  const bool cut = model.experts->ffn % job.layout.etp.value_or(tp) == 0 &&
                   model.experts->shared * model.experts->shared_ffn % tp == 0;
  return broken_unless(cut, LayoutRule::kExpertWidth);
}

std::optional<LayoutRule> broken_context_rule(const Job& job, int tp, int cp) {
  const bool ulysses = job.layout.context_parallel == ContextParallel::kUlysses;
  const bool hierarchical = job.layout.context_parallel == ContextParallel::kHierarchical;
  if (hierarchical != job.layout.context_inner.has_value()) return LayoutRule::kContextInner;
  if (cp == 1) {
    return broken_unless(job.layout.context_parallel == ContextParallel::kRing, LayoutRule::kContextAlone);
  }
  if (job.profile) return LayoutRule::kProfileContext;
  const int inner = job.layout.context_inner.value_or(1);
  if (hierarchical && (cp % inner != 0 || cp == inner)) return LayoutRule::kContextInner;
  // Causal balance gives each rank an early and a late part of the sequence, so it is cut in 2·cp (2310.01889 §4).
  if (job.training.sequence_length % sequence_parts(job.layout, cp) != 0) return LayoutRule::kSequence;
  if (!ulysses && !hierarchical) return std::nullopt;
  return broken_unless(rank_heads(job.model, tp).shared_by(ulysses ? cp : inner), LayoutRule::kUlyssesHeads);
}

std::optional<LayoutRule> broken_replica_rule(const Job& job, int model_ranks) {
  if (job.layout.data_parallel != DataParallel::kDataParallel) return std::nullopt;
  return broken_unless(job.cluster.nodes == 1 && model_ranks == 1, LayoutRule::kOneProcess);
}

std::optional<LayoutRule> broken_expert_rule(const Job& job, int tp, int dp, int cp, int ep) {
  const int sharing = job.layout.etp.value_or(tp);
  if (!job.model.experts) return broken_unless(ep == 1 && sharing == tp, LayoutRule::kNoExperts);
  if (sharing != tp) {
    if (job.model.experts->count % ep != 0) return LayoutRule::kExperts;
    if (tp % sharing != 0) return LayoutRule::kExpertTensor;
    const bool other_form = job.layout.data_parallel == DataParallel::kHsdp;
    if (other_form || job.layout.tensor_parallel != TensorParallel::k1d) return LayoutRule::kExpertFolding;
    return broken_unless(tp / sharing * cp * dp % ep == 0, LayoutRule::kExpertReplicas);
  }
  const bool among_contexts = cp % ep == 0;
  const bool over_replicas = ep % cp == 0 && dp % (ep / cp) == 0;
  if (job.model.experts->count % ep != 0) return LayoutRule::kExperts;
  return broken_unless(among_contexts || over_replicas, LayoutRule::kExpertReplicas);
}

std::optional<LayoutRule> broken_sequence_rule(const Job& job, int tp, int cp, bool sequence_parallel) {
  if (!sequence_parallel) {
    const bool folded = job.model.experts && job.layout.etp.value_or(tp) != tp;
    return broken_unless(!folded, LayoutRule::kExpertFolding);
  }
  if (job.profile) return LayoutRule::kProfileSequence;
  if (job.layout.tensor_parallel != TensorParallel::k1d) return LayoutRule::kSequenceGrid;
  return broken_unless(job.training.sequence_length / cp % tp == 0, LayoutRule::kSequenceTokens);
}

std::optional<LayoutRule> broken_recompute_rule(const Job& job, int tp, bool sequence_parallel, Recompute recompute) {
  if (job.profile && recompute == Recompute::kSelective) return LayoutRule::kProfileRecompute;
  const bool some = job.layout.recompute_layers || job.layout.recompute_every;
  const bool both = job.layout.recompute_layers && job.layout.recompute_every;
  const bool layers = both || (some && (job.profile || recompute != Recompute::kFull));
  const bool modules = job.layout.recompute_modules && (job.profile || recompute != Recompute::kSelective);
  if (layers || modules) return LayoutRule::kRecomputeParts;
  if (!job.layout.partition_checkpoints) return std::nullopt;
  const bool whole_inputs = !sequence_parallel && job.layout.tensor_parallel == TensorParallel::k1d;
  return broken_unless(recompute == Recompute::kFull && tp > 1 && whole_inputs, LayoutRule::kCheckpoints);
}

std::optional<LayoutRule> broken_batch_rule(const Job& job, int tp, int micro_batch_size) {
  if (job.layout.tensor_parallel == TensorParallel::k1d) return std::nullopt;
  const TensorGrid grid = tensor_grid(job.layout.tensor_parallel, tp, job.layout.tensor_depth);
  return broken_unless(micro_batch_size % grid.token_parts == 0, LayoutRule::kGridBatch);
}

std::optional<LayoutRule> broken_sharding_rule(const Job& job, int dp, int cp, int ep, int zero) {
  const Layout& layout = job.layout;
  const bool whole_gradients = layout.data_parallel == DataParallel::kDdp && zero == 0;
  if (layout.compression.kind != Compression::Kind::kNone && !whole_gradients) return LayoutRule::kCompression;
  if (job.profile && zero > 1) return LayoutRule::kProfileSharding;
  if (layout.data_parallel != DataParallel::kHsdp) return std::nullopt;
  return broken_unless(shards_fit(layout.shards, dp, cp, ep), LayoutRule::kShards);
}

RankHeads rank_heads(const Transformer& model, int tp) {
  const int queries = model.heads / tp;
  return {queries, model.latent ? queries : model.kv_heads / tp};
}

bool shards_fit(int shards, int dp, int cp, int ep) {
  const auto beside = [shards](int ranks) { return shards % ranks == 0 || ranks % shards == 0; };
  return dp * cp % shards == 0 && beside(cp) && beside(ep);
}

}  // namespace flopcast
