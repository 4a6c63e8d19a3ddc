#include "model/cost/pricing.hpp"

#include <algorithm>
#include <cmath>

namespace flopcast {

Traffic& Traffic::operator+=(const Traffic& other) {
  time += other.time;
  sent_per_rank += other.sent_per_rank;
  messages += other.messages;
  under_way += other.under_way;
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
  return {traffic.time * times, traffic.sent_per_rank * times, traffic.messages * times, traffic.under_way * times};
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
  traffic.under_way = traffic.time - std::min(traffic.time, communication.network_latency(kind, group) * count);
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
  constexpr double kNoticeable = 0.25;  // of the device's time; the sum is then 0.004 % more
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

// Of one tensor-parallel collective, for the host.
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
  HostTime host{stack.host_time_per_kernel * forward, stack.host_time_per_kernel * backward};
  if (job.layout.tp > 1) {
    const Seconds collective = collective_for_host(pricing);
    host.forward += collective * (job.layout.sequence_parallel ? 4.0 : 2.0);
    host.backward += collective * (job.layout.sequence_parallel ? 6.0 : 2.0);
  }
  return host;
}

void add_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block) {
  const HostTime host = host_time(pricing, operators);
  block.forward.compute += waiting_for_host(host.forward, block.forward.total());
  const Seconds whole = block.input_gradient.total() + block.weight_gradient.total() - block.tp_hidden;
  const Seconds short_of = waiting_for_host(host.backward, whole);
  block.input_gradient.compute += short_of * 0.5;
  block.weight_gradient.compute += short_of * 0.5;
}

}  // namespace flopcast
