#include "model/cost/uneven_costs.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

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
  return stage.forward.total() + stage.recompute.total() + stage.input_gradient.total() +
         stage.weight_gradient.total() - stage.tp_hidden;
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
  if (!job.cluster.uneven()) return job.cluster.device.peak_of(job.training.precision);
  FlopsPerSecond sum;
  for (const ClusterNode& node : job.cluster.uneven_nodes) {
    const Device& device = job.cluster.node_devices[static_cast<std::size_t>(node.device)];
    sum += device.peak_of(job.training.precision) * static_cast<double>(node.devices);
  }
  return sum / static_cast<double>(job.cluster.devices());
}

}  // namespace flopcast
