#include "model/cost/expert_costs.hpp"

#include <algorithm>
#include <cmath>

#include "model/cost/axis_costs.hpp"

namespace flopcast {

namespace {

// Neighbours among the tensor-parallel ranks.
GroupPlacement sharing_an_expert(const PricingContext& pricing) {
  GroupPlacement group = pricing.tp_group;
  const int on_node = group.ranks_per_node * group.groups_sharing_nics;
  group.ranks = *pricing.job.layout.etp;
  group.ranks_per_node = std::min(group.ranks, group.ranks_per_node);
  group.nodes = (group.ranks + group.ranks_per_node - 1) / group.ranks_per_node;
  group.groups_sharing_nics = std::max(1, on_node / group.ranks_per_node);
  return group;
}

void add_gathers_of_routed_tokens(const PricingContext& pricing, Section& block) {
  const Layout& layout = pricing.job.layout;
  const Experts& experts = *pricing.job.model.experts;
  const int sharing = layout.expert_tensor_ranks();
  if (!layout.sequence_parallel || sharing == 1) return;
  const double routed = experts.top_k * experts.capacity_factor.value_or(1.0);
  const Bytes bytes = pricing.hidden_bytes() * (routed * sharing / layout.tp);
  const GroupPlacement group = layout.folds_experts() ? sharing_an_expert(pricing) : pricing.tp_group;
  Traffic pass = pricing.collective(CollectiveKind::kAllGather, bytes, group, 1);
  pass += pricing.collective(CollectiveKind::kReduceScatter, bytes, group, 1);
  block.forward.comm.tp += pass.time;
  block.input_gradient.comm.tp += pass.time;
  block.sent.tp += scaled(pass, 2);
}

// Of so many places, how many different ones that many even choices name.
double distinct(double places, double choices) {
  return places * (1.0 - std::pow(1.0 - 1.0 / places, choices));
}

// One dispatch or combine, `tokens` being the bytes of the tokens that a rank sends.
Traffic one_exchange(const PricingContext& pricing, Bytes tokens, const GroupPlacement& group) {
  const Stack& stack = pricing.job.training.stack;
  const Experts& experts = *pricing.job.model.experts;
  const double ranks = group.ranks;
  const double copies = experts.top_k * experts.capacity_factor.value_or(1.0);
  switch (stack.experts_dispatcher) {
    case ExpertDispatcher::kAlltoall:
      return {pricing.communication.all_to_all(tokens * copies, group),
              all_to_all_sent_per_rank(tokens * copies, group.ranks), ranks - 1};
    case ExpertDispatcher::kAllgather:
      return pricing.collective(CollectiveKind::kAllGather, tokens * ranks, group, 1);
    case ExpertDispatcher::kDeepep:
    case ExpertDispatcher::kHybridep:
      break;
  }
  const double nodes = group.nodes;
  const double limit = stack.experts_node_limit > 0 ? stack.experts_node_limit : nodes;
  const Bytes to_ranks = tokens * (distinct(ranks, experts.top_k) * (1.0 - 1.0 / ranks));
  const Bytes to_nodes = tokens * (std::min(distinct(nodes, experts.top_k), limit) * (1.0 - 1.0 / nodes));
  return {pricing.communication.node_wise_exchange(to_ranks, to_nodes, expert_network_share(stack.experts_dispatcher),
                                                   group),
          std::max(to_ranks, to_nodes), ranks - 1};
}

// What is hidden of exchanges that have as much computation beside them.
double hidden_of_exchanges(ExpertOverlap overlap) {
  switch (overlap) {
    case ExpertOverlap::kNone:
      return 0.0;
    case ExpertOverlap::k1f1b:
      return 0.5;
    case ExpertOverlap::k1f1bDelayed:
      return 0.85;
    case ExpertOverlap::kDualpipe:
      return 0.9;
  }
  return 0.0;
}

constexpr double kExchangeMultiprocessors = 20.0;  // that DualPipe's exchanges hold (2412.19437 §3.2.2)

ExpertOverlap overlap_of(const Job& job) {
  const bool two_way = job.layout.schedule.rfind("dualpipe", 0) == 0;
  return job.training.stack.overlap_experts.value_or(two_way ? ExpertOverlap::kDualpipe : ExpertOverlap::kNone);
}

}  // namespace

double expert_network_share(ExpertDispatcher dispatcher) {
  return dispatcher == ExpertDispatcher::kDeepep ? 0.87 : 0.65;
}

void add_expert_exchange(const PricingContext& pricing, Section& block) {
  const Job& job = pricing.job;
  add_gathers_of_routed_tokens(pricing, block);
  if (job.layout.ep == 1) return;
  const Bytes tokens = pricing.hidden_bytes() / (job.layout.sequence_parallel ? job.layout.tp : 1.0);
  const GroupPlacement group = expert_ranks(pricing);
  const double element = element_size(job.training.precision).value();
  const double dispatched = job.training.stack.experts_dispatch_bytes;
  Traffic pass = one_exchange(pricing, tokens * (dispatched > 0.0 ? dispatched / element : 1.0), group);
  pass += one_exchange(pricing, tokens, group);

  const Seconds computing = block.forward.compute + block.input_gradient.compute + block.weight_gradient.compute;
  const double others = 1.0 - 1.0 / std::max(1, job.layout.microbatches());
  const Seconds hidden = std::min(pass.time, computing * 0.5) * (hidden_of_exchanges(overlap_of(job)) * others);
  block.forward.comm.ep += pass.time - hidden;
  block.input_gradient.comm.ep += pass.time - hidden;
  if (overlap_of(job) == ExpertOverlap::kDualpipe) {
    const double all = std::max(2.0 * kExchangeMultiprocessors, 1.0 * job.cluster.device.multiprocessors);
    const double taken = kExchangeMultiprocessors / all;
    const Seconds slower = hidden * (taken / (1.0 - taken));
    block.forward.compute += slower;
    block.input_gradient.compute += slower;
  }
  block.sent.ep += scaled(pass, 2);
}

namespace {

// Of the shorter of the host's and the device's time, what adds to the longer where the host waits in each layer.
// Fitted, with Megatron Core's host time a kernel, to the published steps of Megatron-Bridge and Grok-1.
constexpr double kInTurn = 0.5;

// The device has nothing to do when the routed operators of a forward pass are launched.
Seconds wait_behind_dispatch(const PricingContext& pricing, const std::vector<Operator>& operators) {
  double kernels = 0.0;
  Seconds device;
  for (const Operator& op : operators) {
    if (!op.routed) continue;
    kernels += op.forward_kernels;
    device += operator_times(op, pricing.compute, pricing.job.training).forward;
  }
  return std::max(Seconds(0), pricing.job.training.stack.host_time_per_kernel * kernels - device);
}

}  // namespace

void add_expert_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block) {
  const Stack& stack = pricing.job.training.stack;
  const bool waits = !pricing.job.model.experts->capacity_factor && stack.cuda_graphs != CudaGraphs::kFull;
  if (!waits || stack.experts_dispatcher == ExpertDispatcher::kHybridep) {
    if (waits) block.forward.compute += wait_behind_dispatch(pricing, operators);
    add_host_floor(pricing, operators, block);
    return;
  }
  const HostTime host = host_time(pricing, operators);
  const Seconds forward = std::min(host.forward, block.forward.total()) * kInTurn;
  const Seconds whole = block.input_gradient.total() + block.weight_gradient.total() - block.tp_hidden;
  const Seconds backward = std::min(host.backward, whole) * kInTurn;
  add_host_floor(pricing, operators, block);
  block.forward.compute += forward;
  block.input_gradient.compute += backward * 0.5;
  block.weight_gradient.compute += backward * 0.5;
}

}  // namespace flopcast
