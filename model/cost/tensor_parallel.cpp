#include "model/cost/tensor_parallel.hpp"

namespace flopcast {

void add_block_collectives(const PricingContext& pricing, Section& block) {
  const Bytes bytes = pricing.hidden_bytes();
  const GroupPlacement& group = pricing.tp_group;
  Traffic forward;
  Traffic backward;
  if (pricing.job.layout.sequence_parallel) {
    const Traffic gathered = pricing.collective(Collective::kAllGather, bytes, group, 2);
    const Traffic scattered = pricing.collective(Collective::kReduceScatter, bytes, group, 2);
    forward = gathered;
    forward += scattered;
    backward = forward;
    backward += gathered;
    block.overlappable_tp = gathered.time + scattered.time;
  } else {
    forward = pricing.collective(Collective::kAllReduce, bytes, group, 2);
    backward = forward;
    block.overlappable_tp = backward.time;
  }
  block.forward.tp_comm += forward.time;
  block.input_gradient.tp_comm += backward.time;
  block.tp += forward;
  block.tp += backward;
}

void add_embedding_collectives(const PricingContext& pricing, Section& embedding) {
  const bool sharded = pricing.job.layout.sequence_parallel;
  const Bytes bytes = pricing.hidden_bytes();
  const Traffic forward =
      pricing.collective(sharded ? Collective::kReduceScatter : Collective::kAllReduce, bytes, pricing.tp_group, 1);
  embedding.forward.tp_comm += forward.time;
  embedding.tp += forward;
  if (sharded) {
    const Traffic backward = pricing.collective(Collective::kAllGather, bytes, pricing.tp_group, 1);
    embedding.input_gradient.tp_comm += backward.time;
    embedding.tp += backward;
  }
}

void add_head_collectives(const PricingContext& pricing, Section& head) {
  const bool sharded = pricing.job.layout.sequence_parallel;
  const Bytes bytes = pricing.hidden_bytes();
  const GroupPlacement& group = pricing.tp_group;
  if (sharded) {
    const Traffic forward = pricing.collective(Collective::kAllGather, bytes, group, 1);
    head.forward.tp_comm += forward.time;
    head.tp += forward;
  }
  const Traffic backward =
      pricing.collective(sharded ? Collective::kReduceScatter : Collective::kAllReduce, bytes, group, 1);
  head.input_gradient.tp_comm += backward.time;
  head.tp += backward;
  constexpr double kLossReductions = 3.0;
  constexpr double kFp32 = 4.0;
  const Traffic loss =
      pricing.collective(Collective::kAllReduce, Bytes(kFp32 * pricing.tokens()), group, kLossReductions);
  head.forward.tp_comm += loss.time;
  head.tp += loss;
}

Traffic recomputed_collectives(const PricingContext& pricing, const Section& block) {
  if (pricing.job.layout.tensor_parallel != TensorParallel::k1d) {
    const bool silent = block.tp.time.value() <= 0.0;
    return silent ? Traffic{} : scaled(block.tp, block.forward.tp_comm / block.tp.time);
  }
  const Traffic again = pricing.collective(Collective::kAllReduce, pricing.hidden_bytes(), pricing.tp_group, 2);
  if (!pricing.job.layout.sequence_parallel) return again;
  return {block.forward.tp_comm, again.sent_per_rank, 4.0};
}

}  // namespace flopcast
