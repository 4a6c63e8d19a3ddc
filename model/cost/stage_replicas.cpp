#include "model/cost/stage_replicas.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/data_parallel.hpp"
#include "model/cost/gradient_buckets.hpp"

namespace flopcast {

namespace {

void offload_activations(const PricingContext& pricing, StageCosts& costs) {
  if (!pricing.job.layout.offloads_activations()) return;
  const Seconds transfer = costs.activation / pricing.job.cluster.host_bandwidth;
  const Seconds backward = costs.recompute.total() + costs.input_gradient.total() + costs.weight_gradient.total();
  costs.forward.offload = std::max(Seconds(0), transfer - costs.forward.total());
  costs.input_gradient.offload = std::max(Seconds(0), transfer - backward);
  const double kept = std::min(1.0, 2.0 / std::max(1, costs.layers));
  costs.offload_buffer = costs.activation * kept;
  costs.activation = Bytes(0);
}

}  // namespace

void finish_stage(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs) {
  add_replica_passes(pricing, stage, runs, costs);
  if (reduces_in_buckets(pricing.job)) fill_buckets(pricing, runs, costs);
  offload_activations(pricing, costs);
}

std::vector<GradientPiece> gradient_pieces(const std::vector<Operator>& operators, const std::vector<Seconds>& backward,
                                           const Layout& layout) {
  Seconds total;
  for (const Seconds& time : backward) total += time;
  std::vector<GradientPiece> pieces;
  pieces.reserve(operators.size());
  Seconds done;
  for (std::size_t index = operators.size(); index-- > 0;) {
    done += backward[index];
    const Operator& op = operators[index];
    if (op.parameters <= 0.0) continue;
    pieces.push_back({gradient_amount(op, layout), op.of_experts, total.value() > 0.0 ? done / total : 1.0});
  }
  return pieces;
}

}  // namespace flopcast
