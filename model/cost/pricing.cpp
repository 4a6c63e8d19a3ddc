#include "model/cost/pricing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

#include "base/text/error.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/layout/rank_grid.hpp"

namespace flopcast {

Traffic& Traffic::operator+=(const Traffic& other) {
  time += other.time;
  sent_per_rank += other.sent_per_rank;
  messages += other.messages;
  on_links += other.on_links;
  return *this;
}

void FrozenWeights::add(const FrozenWeights& other, double times) {
  parameters += other.parameters * times;
  experts += other.experts * times;
  weights += other.weights * times;
  expert_weights += other.expert_weights * times;
}

void MatrixUpdate::add(const MatrixUpdate& other, double times) {
  parameters += other.parameters * times;
  projected += other.projected * times;
  projections += other.projections * times;
  products += other.products * times;
}

void MatrixUpdates::add(const MatrixUpdates& other, double times) {
  dense.add(other.dense, times);
  experts.add(other.experts, times);
}

GradientAmount& GradientAmount::operator+=(const GradientAmount& other) {
  parameters += other.parameters;
  low_rank_elements += other.low_rank_elements;
  return *this;
}

Traffic scaled(const Traffic& traffic, double times) {
  return {traffic.time * times, traffic.sent_per_rank * times, traffic.messages * times, traffic.on_links * times};
}

Seconds TensorCollectives::beside() const {
  const auto of = [this](const Products& products) {
    return std::min(gather, products.input_gradient) + std::min(sum, products.weight_gradient);
  };
  return of(attention) + (has_mlp ? of(mlp) : Seconds(0));
}

double overlap_slowdown(const Device& device) {
  constexpr double kOfGpus = 0.4;
  return device.generation == GpuGeneration::kCpu ? 0.0 : kOfGpus;
}

PricingContext::PricingContext(const Job& priced_job, const StageMap& stage_map)
    : job(priced_job),
      map(stage_map),
      grid(priced_job.layout),
      compute(priced_job.cluster.device, priced_job.training.precision, priced_job.training.stack,
              priced_job.training.fp8_recipe, priced_job.laws.get()),
      communication(priced_job.cluster, priced_job.training.transport, priced_job.training.stack.nccl,
                    priced_job.laws.get()),
      replica_communication(priced_job.cluster, priced_job.training.gradient_transport, priced_job.training.stack.nccl,
                            priced_job.laws.get()),
      tp_group(grid.placement(Axis::kTensor, priced_job.cluster)),
      replicas(priced_job.layout.cp == 1 ? grid.placement(Axis::kData, priced_job.cluster)
                                         : grid.expert_replica_placement(1, priced_job.cluster)) {}

double PricingContext::tokens() const {
  return static_cast<double>(sequences_of(job.training, job.layout.micro_batch_size)) * job.training.sequence_length /
         job.layout.cp;
}

Bytes PricingContext::hidden_bytes() const {
  return element_size(job.training.precision) * (tokens() * job.model.hidden);
}

namespace {

Traffic collective_over(const CommunicationModel& communication, CollectiveKind kind, Bytes bytes,
                        const GroupPlacement& group, double count) {
  Traffic traffic;
  if (group.ranks <= 1) return traffic;
  traffic.time = communication.collective(kind, bytes, group) * count;
  traffic.sent_per_rank = bytes_sent_per_rank(kind, bytes, group.ranks) * count;
  traffic.messages = count;
  traffic.on_links = traffic.time - std::min(traffic.time, communication.network_latency(kind, group) * count);
  return traffic;
}

}  // namespace

Traffic PricingContext::collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& group, double count) const {
  return collective_over(communication, kind, bytes, group, count);
}

Traffic PricingContext::replica_collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& group,
                                           double count) const {
  return collective_over(replica_communication, kind, bytes, group, count);
}

Seconds waiting_for_host(Seconds host, Seconds device) {
  constexpr double kExponent = 6.0;     // fitted to published vTrain steps on one node, about half of them host-bound
  constexpr double kNoticeable = 0.25;  // fraction of the device's time at which the sum is 0.004 % larger
  if (host <= device * kNoticeable) return Seconds(0);
  const double ratio = device / host;
  return host * std::pow(1.0 + std::pow(ratio, kExponent), 1.0 / kExponent) - device;
}

namespace {

bool neighbours_on_other_nodes(const PricingContext& pricing) {
  const int pipeline_ranks = pricing.job.layout.pp;
  for (int rank = 0; rank + 1 < pipeline_ranks; ++rank) {
    if (pricing.grid.pipeline_hop_crosses_nodes(rank, rank + 1, pricing.job.cluster)) return true;
  }
  return false;
}

// Host time for one tensor-parallel collective.
Seconds collective_for_host(const PricingContext& pricing) {
  const Stack& stack = pricing.job.training.stack;
  Seconds time = stack.host_time_per_collective;
  if (stack.host_waits_for_hops) {
    time += pricing.job.cluster.hop_latency * static_cast<double>(pricing.tp_group.nodes - 1);
  }
  if (stack.collective_stall > Seconds(0) && neighbours_on_other_nodes(pricing)) {
    time += stack.collective_stall * static_cast<double>(pricing.tp_group.ranks);
  }
  return time;
}

}  // namespace

HostTime host_time(const PricingContext& pricing, const std::vector<Operator>& operators) {
  const Job& job = pricing.job;
  const Stack& stack = job.training.stack;
  const bool with_routed =
      std::any_of(operators.begin(), operators.end(), [](const Operator& op) { return op.routed; });
  constexpr double kOutsideGraphs = 0.5;
  double forward = 0.0;
  double backward = 0.0;
  for (const Operator& op : operators) {
    double launched = 1.0;
    if (stack.cuda_graphs == CudaGraphs::kFull) launched = 0.0;
    if (stack.cuda_graphs == CudaGraphs::kScoped) launched = !with_routed ? kOutsideGraphs : op.routed ? 1.0 : 0.0;
    forward += op.forward_kernels * launched;
    backward += op.backward_kernels * launched;
  }
  const Seconds ring = job.layout.cp > 1 ? stack.host_time_per_ring_step * (job.layout.cp * 0.5) : Seconds(0);
  HostTime host{stack.host_time_per_kernel * forward + ring, stack.host_time_per_kernel * backward + ring};
  if (job.layout.tp > 1) {
    const Seconds collective = collective_for_host(pricing);
    host.forward += collective * (job.layout.sequence_parallel ? 4.0 : 2.0);
    host.backward += collective * (job.layout.sequence_parallel ? 6.0 : 2.0);
  }
  host.forward *= 1.0 / job.cluster.host_speed;
  host.backward *= 1.0 / job.cluster.host_speed;
  return host;
}

void add_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block) {
  const HostTime host = host_time(pricing, operators);
  const Seconds whole = block.input_gradient.total() + block.weight_gradient.total() - block.tp_hidden;
  block.host = {host.forward, host.backward, waiting_for_host(host.forward, block.forward.total()),
                waiting_for_host(host.backward, whole)};
  block.forward.compute += block.host.forward_wait;
  block.input_gradient.compute += block.host.backward_wait * 0.5;
  block.weight_gradient.compute += block.host.backward_wait * 0.5;
}

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

// Bytes that a microbatch sends over the boundary after the first `layers` layers.
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
