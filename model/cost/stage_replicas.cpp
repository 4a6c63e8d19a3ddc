#include "model/cost/stage_replicas.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/data_parallel.hpp"

namespace flopcast {

namespace {

Seconds backward_of(const UnitRun& run) {
  return run.recompute + run.section->input_gradient.total() + run.section->weight_gradient.total();
}

std::vector<ShardedUnit> units_of(const std::vector<UnitRun>& runs) {
  std::vector<ShardedUnit> units;
  for (const UnitRun& run : runs) {
    const Section& section = *run.section;
    const ShardedUnit unit{section.parameters, section.expert_parameters, section.forward.total(), backward_of(run)};
    units.insert(units.end(), static_cast<std::size_t>(run.count), unit);
  }
  return units;
}

std::vector<GradientPiece> pieces_of(const std::vector<UnitRun>& runs) {
  Seconds total;
  for (const UnitRun& run : runs) total += backward_of(run) * static_cast<double>(run.count);
  std::vector<GradientPiece> pieces;
  Seconds done;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    for (int unit = 0; unit < run->count; ++unit) {
      for (GradientPiece piece : run->section->gradients) {
        piece.finished = total.value() > 0.0 ? (done + backward_of(*run) * piece.finished) / total : 1.0;
        piece.finished = std::min(1.0, piece.finished);
        pieces.push_back(piece);
      }
      done += backward_of(*run);
    }
  }
  return pieces;
}

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
  add_replica_passes(pricing, stage, units_of(runs), costs);
  if (reduces_in_buckets(pricing.job)) fill_buckets(pricing, pieces_of(runs), costs);
  offload_activations(pricing, costs);
}

std::vector<GradientPiece> gradient_pieces(const std::vector<Operator>& operators, const std::vector<Seconds>& backward,
                                           const Layout& layout) {
  Seconds total;
  for (const Seconds& time : backward) total += time;
  std::vector<GradientPiece> pieces;
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
