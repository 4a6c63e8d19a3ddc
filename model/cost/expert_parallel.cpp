#include "model/cost/expert_parallel.hpp"

#include <algorithm>

namespace flopcast {

namespace {

void add_gathers_of_routed_tokens(const PricingContext& pricing, Section& block) {
  const Layout& layout = pricing.job.layout;
  const Experts& experts = *pricing.job.model.experts;
  if (!layout.sequence_parallel || layout.tp == 1) return;
  // Shared experts read the tokens as they are, so that the dense MLP's own collectives stay beside those of the
  // routed.
  const double routed = experts.top_k * experts.capacity_factor.value_or(1.0);
  const double more = experts.shared > 0 ? routed : std::max(0.0, routed - 1.0);
  const Bytes bytes = pricing.hidden_bytes() * more;
  Traffic pass = pricing.collective(Collective::kAllGather, bytes, pricing.tp_group, 1);
  pass += pricing.collective(Collective::kReduceScatter, bytes, pricing.tp_group, 1);
  block.forward.tp_comm += pass.time;
  block.input_gradient.tp_comm += pass.time;
  block.tp += scaled(pass, 2);
}

}  // namespace

void add_expert_exchange(const PricingContext& pricing, Section& block) {
  const Layout& layout = pricing.job.layout;
  add_gathers_of_routed_tokens(pricing, block);
  if (layout.ep == 1) return;
  const double share = layout.sequence_parallel ? layout.tp : 1.0;
  const Experts& experts = *pricing.job.model.experts;
  const double copies = experts.top_k * experts.capacity_factor.value_or(1.0);
  const Bytes routed = pricing.hidden_bytes() * (copies / share);
  const GroupPlacement group = pricing.grid.expert_placement(layout.ep, pricing.job.cluster);
  const Seconds exchange = pricing.communication.all_to_all(routed, group);
  constexpr double kExchangesPerPass = 2.0;  // dispatch and combine
  block.forward.ep_comm += exchange * kExchangesPerPass;
  block.input_gradient.ep_comm += exchange * kExchangesPerPass;
  const Bytes sent = all_to_all_sent_per_rank(routed, group.ranks);
  block.ep += scaled({exchange, sent, static_cast<double>(group.ranks - 1)}, 2 * kExchangesPerPass);
}

GroupPlacement expert_replicas(const PricingContext& pricing) {
  return pricing.grid.expert_replica_placement(pricing.job.layout.ep, pricing.job.cluster);
}

}  // namespace flopcast
