#include "planner/space/rules.hpp"

namespace flopcast {

namespace {

const char* broken_grid_rule(const Job& job, int tp) {
  const TensorGrid grid = tensor_grid(job.layout.tensor_parallel, tp, job.layout.tensor_depth);
  if (grid.q == 0) return "tp does not fill the grid of tensor_parallel";
  const int parts = job.layout.tensor_parallel == TensorParallel::k3d ? grid.q * grid.q : grid.q;
  const Transformer& model = job.model;
  const bool cut =
      model.heads % grid.q == 0 && model.kv_heads % grid.q == 0 && model.ffn % parts == 0 && model.hidden % parts == 0;
  return cut ? nullptr : "the grid of tensor_parallel does not cut heads, MLP and hidden size";
}

}  // namespace

const char* broken_tensor_rule(const Job& job, int tp) {
  if (job.profile) return tp == 1 ? nullptr : "a layer profile cannot be split over tp";
  if (job.layout.tensor_parallel != TensorParallel::k1d) return broken_grid_rule(job, tp);
  const Transformer& model = job.model;
  if (model.heads % tp != 0) return "tp does not divide the attention heads";
  if (model.kv_heads % tp != 0) return "tp does not divide the key/value heads";
  if (model.ffn % tp != 0) return "tp does not divide the MLP width";
  if (!model.experts) return nullptr;
  const bool cut = model.experts->ffn % tp == 0 && model.experts->shared * model.experts->shared_ffn % tp == 0;
  return cut ? nullptr : "tp does not divide the width of the experts";
}

const char* broken_context_rule(const Job& job, int tp, int cp) {
  const bool ulysses = job.layout.context_parallel == ContextParallel::kUlysses;
  if (cp == 1) return ulysses ? "ulysses needs cp above 1" : nullptr;
  if (job.profile) return "a layer profile cannot be split over cp";
  if (job.training.sequence_length % (2 * cp) != 0) return "2 cp does not divide the sequence length";
  if (!ulysses) return nullptr;
  const int queries = job.model.heads / tp;
  const int keys = job.model.latent ? queries : job.model.kv_heads / tp;
  return queries % cp == 0 && keys % cp == 0 ? nullptr : "ulysses: cp does not divide the heads of a tensor rank";
}

const char* broken_replica_rule(const Job& job, const LayoutGroup& group) {
  if (job.layout.data_parallel != DataParallel::kDataParallel) return nullptr;
  const bool one_process = job.cluster.nodes == 1 && group.tp * group.cp * group.pp == 1;
  return one_process ? nullptr : "dataparallel is one process on one node, without other parallelism";
}

const char* broken_expert_rule(const Job& job, const LayoutGroup& group) {
  if (!job.model.experts) return group.ep == 1 ? nullptr : "ep needs a model with experts";
  const bool among_contexts = group.cp % group.ep == 0;
  const bool over_replicas = group.ep % group.cp == 0 && group.dp % (group.ep / group.cp) == 0;
  if (job.model.experts->count % group.ep != 0) return "ep does not divide the experts";
  return among_contexts || over_replicas ? nullptr : "ep does not divide the replicas dp cp";
}

const char* broken_sequence_rule(const Job& job, const LayoutGroup& group) {
  if (!group.sequence_parallel) return nullptr;
  if (job.layout.tensor_parallel != TensorParallel::k1d) return "sequence parallelism is of tensor_parallel 1d";
  return job.training.sequence_length / group.cp % group.tp == 0 ? nullptr : "tp does not divide the tokens of a rank";
}

const char* broken_recompute_rule(const Job& job, const LayoutGroup& group) {
  if (!job.layout.partition_checkpoints) return nullptr;
  const bool cuts = group.recompute == Recompute::kFull && group.tp > 1 && !group.sequence_parallel;
  return cuts ? nullptr : "partition_checkpoints needs recompute full and tp above 1 without sequence parallelism";
}

const char* broken_batch_rule(const Job& job, const LayoutGroup& group) {
  if (job.layout.tensor_parallel == TensorParallel::k1d) return nullptr;
  const TensorGrid grid = tensor_grid(job.layout.tensor_parallel, group.tp, job.layout.tensor_depth);
  return group.micro_batch_size % grid.token_parts == 0 ? nullptr : "the grid does not cut the microbatch";
}

const char* broken_sharding_rule(const Job& job, const LayoutGroup& group, int zero) {
  const Layout& layout = job.layout;
  const bool compressed = layout.compression.kind != Compression::Kind::kNone;
  if (compressed && zero > 0) return "compression needs zero 0";
  if (job.profile && zero > 1) return "a layer profile cannot shard gradients";
  if (layout.data_parallel != DataParallel::kHsdp) return nullptr;
  const auto beside = [&layout](int ranks) { return layout.shards % ranks == 0 || ranks % layout.shards == 0; };
  const bool splits = group.dp * group.cp % layout.shards == 0 && beside(group.cp) && beside(group.ep);
  return splits ? nullptr : "shards does not divide the replicas";
}

}  // namespace flopcast
