#include "model/cost/stage_costs.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

#include "base/text/error.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/cost/pricing.hpp"
#include "model/layout/rank_grid.hpp"

namespace flopcast {

namespace {

// The distinct devices of each pipeline rank, by index into Cluster::node_devices.
std::vector<std::set<int>> devices_by_pipeline_rank(const Job& job) {
  const RankGrid grid(job.layout);
  std::vector<std::set<int>> devices(static_cast<std::size_t>(job.layout.pp));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const ClusterNode& node = job.cluster.uneven_nodes[static_cast<std::size_t>(job.cluster.node_of(rank))];
    devices[static_cast<std::size_t>(grid.coordinate(rank, Axis::kPipeline))].insert(node.device);
  }
  return devices;
}

Seconds time_of(const StageCosts& stage) {
  return stage.passes();
}

Seconds time_of(const FlushCosts& flush) {
  return flush.gradient_reduction + flush.embedding_reduction + flush.gradient_norm + flush.optimizer +
         flush.parameter_gather;
}

}  // namespace

StepCosts price_uneven_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers) {
  std::vector<StepCosts> by_device;
  for (const Device& device : job.cluster.node_devices) {
    Job alike = job;
    alike.cluster.device = device;
    alike.cluster.node_devices = {device};
    for (ClusterNode& node : alike.cluster.uneven_nodes) node.device = 0;
    by_device.push_back(price_step(alike, map, stage_layers));
  }
  const std::vector<std::set<int>> devices = devices_by_pipeline_rank(job);
  const auto slowest = [&by_device, &devices](int rank, const auto& cost_on) {
    int chosen = *devices[static_cast<std::size_t>(rank)].begin();
    for (const int device : devices[static_cast<std::size_t>(rank)]) {
      const auto time_on = [&](int index) { return time_of(cost_on(by_device[static_cast<std::size_t>(index)])); };
      if (time_on(device) > time_on(chosen)) chosen = device;
    }
    return cost_on(by_device[static_cast<std::size_t>(chosen)]);
  };
  StepCosts costs = by_device.front();
  for (std::size_t index = 0; index < costs.stages.size(); ++index) {
    const auto stage_on = [index](const StepCosts& on) { return on.stages[index]; };
    costs.stages.own(index) = slowest(map.rank_of_stage[index], stage_on);
  }
  for (std::size_t rank = 0; rank < costs.ranks.size(); ++rank) {
    const auto flush_on = [rank](const StepCosts& on) { return on.ranks[rank]; };
    costs.ranks[rank] = slowest(static_cast<int>(rank), flush_on);
  }
  return costs;
}

Bytes memory_capacity(const Job& job, int pipeline_rank) {
  if (!job.cluster.uneven()) return job.cluster.device.memory_capacity;
  const std::vector<std::set<int>> devices = devices_by_pipeline_rank(job);
  Bytes smallest = Bytes(1e30);
  for (const int device : devices[static_cast<std::size_t>(pipeline_rank)]) {
    smallest = std::min(smallest, job.cluster.node_devices[static_cast<std::size_t>(device)].memory_capacity);
  }
  return smallest;
}

FlopsPerSecond mean_peak(const Job& job) {
  if (!job.cluster.uneven()) return product_peak(job.cluster.device, job.training);
  FlopsPerSecond sum;
  for (const ClusterNode& node : job.cluster.uneven_nodes) {
    const Device& device = job.cluster.node_devices[static_cast<std::size_t>(node.device)];
    sum += product_peak(device, job.training) * static_cast<double>(node.devices);
  }
  return sum / static_cast<double>(job.cluster.devices());
}

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
