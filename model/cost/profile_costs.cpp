#include "model/cost/profile_costs.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/data_parallel.hpp"
#include "model/cost/pricing.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

// What a microbatch sends over a cut behind the first `layers` layers.
Bytes cut_behind(const LayerProfile& profile, int layers, const Layout& layout) {
  if (layers <= 0) return Bytes(0);
  return profile.layers.at(static_cast<std::size_t>(layers - 1)).output * profile.scale(layout.micro_batch_size);
}

StageCosts stage_of(const LayerProfile& profile, int first, int count, const Layout& layout) {
  const double scale = profile.scale(layout.micro_batch_size);
  StageCosts costs;
  costs.layers = count;
  for (int index = first; index < first + count; ++index) {
    const ProfiledLayer& layer = profile.layers.at(static_cast<std::size_t>(index));
    costs.forward.compute += layer.forward * scale;
    costs.input_gradient.compute += layer.input_gradient * scale;
    costs.weight_gradient.compute += layer.weight_gradient * scale;
    costs.activation += layer.activation * scale;
    costs.parameters += layer.parameters;
  }
  if (layout.recompute == Recompute::kFull) {
    costs.recompute = costs.forward;
    costs.recompute_buffer = costs.activation;
    costs.activation = cut_behind(profile, first, layout);
  }
  return costs;
}

BoundaryCosts boundary_of(const PricingContext& pricing, int stage, Bytes bytes) {
  const StageMap& map = pricing.map;
  const Cluster& cluster = pricing.job.cluster;
  const int from = map.rank_of_stage[static_cast<std::size_t>(stage)];
  const int to = map.rank_of_stage[static_cast<std::size_t>(stage) + 1];
  BoundaryCosts costs;
  const bool between_chains = map.model_stage(stage) + 1 == map.model_stages;
  if (from == to || between_chains) return costs;
  const bool crosses = pricing.grid.pipeline_hop_crosses_nodes(from, to, cluster);
  const int flows = std::min(cluster.devices_per_node, pricing.grid.stride(Axis::kPipeline));
  costs.bytes = bytes / static_cast<double>(pricing.job.layout.slices.value_or(1));
  costs.forward = pricing.communication.point_to_point(costs.bytes, crosses, flows);
  costs.backward = costs.forward;
  return costs;
}

}  // namespace

StepCosts price_profile_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers) {
  FLOPCAST_CHECK(job.profile.has_value());
  const LayerProfile& profile = *job.profile;
  const PricingContext pricing(job, map);
  std::vector<int> first_layer = {0};
  for (const int layers : stage_layers) first_layer.push_back(first_layer.back() + layers);

  StepCosts costs;
  for (int stage = 0; stage < map.stages(); ++stage) {
    const std::size_t part = static_cast<std::size_t>(map.model_stage(stage));
    costs.stages.push_back(stage_of(profile, first_layer[part], stage_layers[part], job.layout));
  }
  for (int stage = 0; stage + 1 < map.stages(); ++stage) {
    const std::size_t part = static_cast<std::size_t>(map.model_stage(stage));
    costs.boundaries.push_back(boundary_of(pricing, stage, cut_behind(profile, first_layer[part + 1], job.layout)));
  }
  costs.ranks = price_flushes(pricing, costs);
  return costs;
}

}  // namespace flopcast
