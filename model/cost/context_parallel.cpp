#include "model/cost/context_parallel.hpp"

#include <algorithm>

namespace flopcast {

namespace {

constexpr double kRingBackward = 2.0;  // K and V, and their gradients

void add_ring(const PricingContext& pricing, const GroupPlacement& group, Section& block) {
  const Job& job = pricing.job;
  const Bytes step = element_size(job.training.precision) *
                     (pricing.tokens() * (job.model.key_width() + job.model.value_width()) / job.layout.tp);
  const Seconds hop = pricing.communication.point_to_point(step, group.crosses_nodes(), group.groups_sharing_nics);
  const double steps = job.layout.cp - 1;
  const Seconds forward = hop * steps;
  const Seconds backward = hop * (steps * kRingBackward);
  block.forward.cp_comm += std::max(Seconds(0), forward - block.core.compute);
  block.input_gradient.cp_comm += std::max(Seconds(0), backward - block.core.compute * kRingBackward);
  block.cp.time += forward + backward;
  block.cp.sent_per_rank += step * (steps * (1.0 + kRingBackward));
  block.cp.messages += steps * (1.0 + kRingBackward);
}

void add_all_to_alls(const PricingContext& pricing, const GroupPlacement& group, Section& block) {
  const Job& job = pricing.job;
  const Bytes column = element_size(job.training.precision) * (pricing.tokens() / job.layout.tp);
  const Transformer& model = job.model;
  for (const int width : {model.attention_width(), model.key_width(), model.value_width(), model.context_width()}) {
    const Bytes buffer = column * static_cast<double>(width);
    const Seconds exchange = pricing.communication.all_to_all(buffer, group);
    block.forward.cp_comm += exchange;
    block.input_gradient.cp_comm += exchange;
    constexpr double kPasses = 2.0;
    block.cp += scaled({exchange, all_to_all_sent_per_rank(buffer, group.ranks), static_cast<double>(group.ranks - 1)},
                       kPasses);
  }
}

}  // namespace

void add_context_exchange(const PricingContext& pricing, Section& block) {
  const Layout& layout = pricing.job.layout;
  if (layout.cp == 1) return;
  const GroupPlacement group = pricing.grid.placement(Axis::kContext, pricing.job.cluster);
  if (layout.context_parallel == ContextParallel::kRing) {
    add_ring(pricing, group, block);
  } else {
    add_all_to_alls(pricing, group, block);
  }
}

double context_share_of_forward(const Layout& layout) {
  return layout.context_parallel == ContextParallel::kRing ? 1.0 / (1.0 + kRingBackward) : 0.5;
}

}  // namespace flopcast
