#include "model/cost/expert_costs.hpp"

#include <algorithm>
#include <cmath>

#include "model/cost/axis_costs.hpp"

namespace flopcast {

namespace {

// The group of adjacent tensor-parallel ranks that share an expert.
GroupPlacement sharing_an_expert(const PricingContext& pricing) {
  GroupPlacement group = pricing.tp_group;
  const int on_node = group.ranks_per_node * group.groups_sharing_nics;
  group.ranks = *pricing.job.layout.etp;
  group.ranks_per_node = std::min(group.ranks, group.ranks_per_node);
  group.nodes = (group.ranks + group.ranks_per_node - 1) / group.ranks_per_node;
  group.groups_sharing_nics = std::max(1, on_node / group.ranks_per_node);
  return group;
}

// One dispatch or combine; `tokens` are the bytes of the tokens that a rank sends.
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
  const Bytes to_ranks = tokens * (experts.places_of_token(group.ranks) * (1.0 - 1.0 / ranks));
  const Bytes to_nodes = tokens * (std::min(experts.places_of_token(group.nodes), limit) * (1.0 - 1.0 / nodes));
  return {
      pricing.communication.node_wise_exchange(to_ranks, to_nodes, node_wise_share(stack.experts_dispatcher), group),
      std::max(to_ranks, to_nodes), ranks - 1};
}

constexpr int kExchangeMultiprocessors = 20;  // multiprocessors occupied by DualPipe's exchanges (2412.19437 §3.2.2)
// Relative slowdown of exchanges that overlap with computation: combines take 6.1 ms in the public trace of
// DeepSeek-V3's pairs (deepseek-ai/profile-data), and 4.7 ms alone at the rate of DeepEP's table.
constexpr double kSlowerBesideComputation = 0.3;

}  // namespace

double node_wise_share(ExpertDispatcher dispatcher) {
  return dispatcher == ExpertDispatcher::kDeepep ? 0.87 : 0.65;
}

Traffic gathers_of_routed_tokens(const PricingContext& pricing) {
  const Layout& layout = pricing.job.layout;
  const Experts& experts = *pricing.job.model.experts;
  const int sharing = layout.expert_tensor_ranks();
  if (!layout.sequence_parallel || sharing == 1) return {};
  const double routed = experts.top_k * experts.capacity_factor.value_or(1.0);
  const Bytes bytes = pricing.hidden_bytes() * (routed * sharing / layout.tp);
  const GroupPlacement group = layout.folds_experts() ? sharing_an_expert(pricing) : pricing.tp_group;
  Traffic pass = pricing.collective(CollectiveKind::kAllGather, bytes, group, 1);
  pass += pricing.collective(CollectiveKind::kReduceScatter, bytes, group, 1);
  return pass;
}

void add_expert_exchange(const PricingContext& pricing, Section& block) {
  const Job& job = pricing.job;
  const Traffic gathers = gathers_of_routed_tokens(pricing);
  block.forward.comm.tp += gathers.time;
  block.input_gradient.comm.tp += gathers.time;
  block.sent.tp += scaled(gathers, 2);
  if (job.layout.ep == 1) return;
  const Bytes tokens = pricing.hidden_bytes() / (job.layout.sequence_parallel ? job.layout.tp : 1.0);
  const GroupPlacement group = expert_ranks(pricing);
  const double element = element_size(job.training.precision).value();
  const double dispatched = job.training.stack.experts_dispatch_bytes;
  // The fullest rank receives and returns the most.
  const Bytes busiest = tokens * job.model.experts->fullest_rank(job.layout.ep);
  const Traffic dispatch = one_exchange(pricing, busiest * (dispatched > 0.0 ? dispatched / element : 1.0), group);
  const Traffic combine = one_exchange(pricing, busiest, group);
  block.expert_layer.dispatch = dispatch.time;
  block.expert_layer.combine = combine.time;
  Traffic pass = dispatch;
  pass += combine;
  block.forward.comm.ep += pass.time;
  block.input_gradient.comm.ep += pass.time;
  block.sent.ep += scaled(pass, 2);
}

ExpertOverlap overlap_of_experts(const Job& job) {
  const bool two_way = job.layout.schedule.rfind("dualpipe", 0) == 0;
  return job.training.stack.overlap_experts.value_or(two_way ? ExpertOverlap::kDualpipe : ExpertOverlap::kNone);
}

ExpertLayer expert_layer(const Job& job, const Section& block) {
  ExpertLayer layer = block.expert_layer;
  // Everything else is communication of other axes and the computation it slows down.
  const auto before = [](Seconds whole, Seconds exchanged, Seconds behind_dispatch) {
    return std::max(Seconds(0), whole - exchanged - behind_dispatch);
  };
  layer.before = before(block.forward.total(), block.forward.comm.ep, layer.experts);
  layer.before_input =
      before(block.input_gradient.total() - block.tp_hidden, block.input_gradient.comm.ep, layer.experts_input);
  layer.before_weight = before(block.weight_gradient.total(), Seconds(0), layer.experts_weight);
  const ExpertOverlap overlap = overlap_of_experts(job);
  layer.delays_weights = overlap == ExpertOverlap::k1f1bDelayed || overlap == ExpertOverlap::kDualpipe;
  layer.exchange_slower = kSlowerBesideComputation;
  return layer;
}

namespace {

// A piece of one stream and its dependency on the other.
struct Piece {
  Seconds left;
  std::size_t after = 0;  ///< number of pieces of the other stream that must have ended
  bool dispatches = false;
  bool forward = false;
};

struct Streams {
  std::vector<Piece> computes;
  std::vector<Piece> exchanges;
};

Streams pieces_of(const ExpertLayer& layer, int layers) {
  const bool delays = layer.delays_weights;
  const std::size_t computes = delays ? 6 : 4;
  constexpr std::size_t kExchanges = 4;
  Streams streams;
  for (int index = 0; index < layers; ++index) {
    const std::size_t computed = computes * static_cast<std::size_t>(index);
    const std::size_t exchanged = kExchanges * static_cast<std::size_t>(index);
    const auto compute = [&](Seconds time, std::size_t after) { streams.computes.push_back({time, after}); };
    compute(layer.before, exchanged);
    compute(layer.experts_input + (delays ? Seconds(0) : layer.experts_weight), exchanged + 1);
    if (delays) compute(layer.experts_weight, 0);
    compute(layer.experts, exchanged + 2);
    compute(layer.before_input + (delays ? Seconds(0) : layer.before_weight), exchanged + 3);
    if (delays) compute(layer.before_weight, 0);
    const auto exchange = [&](bool dispatches, bool forward, std::size_t after) {
      streams.exchanges.push_back({dispatches ? layer.dispatch : layer.combine, after, dispatches, forward});
    };
    // The gradient from the layer above is available once that layer's input gradient is computed.
    exchange(true, false, index == 0 ? 0 : computed - (delays ? 1 : 0));
    exchange(true, true, computed + 1);
    exchange(false, false, computed + 2);
    exchange(false, true, computed + (delays ? 4 : 3));
  }
  return streams;
}

}  // namespace

PairedLayers paired_layers(const ExpertLayer& layer, int layers) {
  Streams streams = pieces_of(layer, layers);
  PairedLayers pair;
  pair.exchanges.reserve(streams.exchanges.size());
  std::size_t computed = 0;
  std::size_t exchanged = 0;
  bool exchanging = false;
  while (computed < streams.computes.size() || exchanged < streams.exchanges.size()) {
    const bool computes = computed < streams.computes.size() && streams.computes[computed].after <= exchanged;
    const bool exchanges = exchanged < streams.exchanges.size() && streams.exchanges[exchanged].after <= computed;
    const double slower = 1.0 + (exchanges ? layer.slower : 0.0);
    const double exchange_slower = 1.0 + (computes ? layer.exchange_slower : 0.0);
    if (exchanges && !exchanging) {
      const Piece& piece = streams.exchanges[exchanged];
      pair.exchanges.push_back({piece.dispatches, piece.forward, pair.time, pair.time});
      exchanging = true;
    }
    const Seconds until_computed = computes ? streams.computes[computed].left * slower : Seconds(0);
    const Seconds until_exchanged = exchanges ? streams.exchanges[exchanged].left * exchange_slower : Seconds(0);
    const bool computed_first = computes && (!exchanges || until_computed <= until_exchanged);
    const Seconds step = computed_first ? until_computed : until_exchanged;
    pair.time += step;
    if (!computes) pair.exposed += step;
    if (computes) streams.computes[computed].left -= step / slower;
    if (exchanges) streams.exchanges[exchanged].left -= step / exchange_slower;
    if (computed_first) {
      ++computed;
    } else {
      pair.exchanges.back().end = pair.time;
      exchanging = false;
      ++exchanged;
    }
  }
  return pair;
}

namespace {

// Fraction of the shorter of host and device time that adds to the longer one if the host waits in each layer. Fitted,
// together with Megatron Core's host time per kernel, to the published steps of Megatron-Bridge and Grok-1.
constexpr double kInTurn = 0.5;

// The device is idle when the routed operators of a forward pass are launched.
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

// The device without the multiprocessors that exchanges occupy.
Device left_beside_exchanges(Device device) {
  const int taken = std::min(kExchangeMultiprocessors, device.multiprocessors / 2);
  const double left = static_cast<double>(device.multiprocessors - taken) / device.multiprocessors;
  device.multiprocessors -= taken;
  for (FlopsPerSecond& peak : device.peak) peak = peak * left;
  device.peak_fp4 = device.peak_fp4 * left;
  return device;
}

Seconds of_products(const ComputeModel& compute, const Training& training, const std::vector<Operator>& operators) {
  Seconds sum;
  for (const Operator& op : operators) {
    if (op.kind == OperatorKind::kMemoryBound) continue;
    Operator bare = op;
    bare.forward_casts = bare.backward_casts = bare.transposed = Bytes(0);
    bare.input_gradient_bytes = bare.weight_gradient_bytes = Bytes(0);
    bare.cast_kernels = bare.widening_kernels = 0;
    bare.calls = 1;
    const OperatorTimes times = operator_times(bare, compute, training);
    sum += times.forward + times.input_gradient + times.weight_gradient;
  }
  return sum;
}

// Relative slowdown of a layer's computation that overlaps with an exchange: GEMMs and attention have fewer
// multiprocessors and thus different waves; memory-bound kernels lose nothing.
double slowdown_beside_exchanges(const PricingContext& pricing, const std::vector<Operator>& operators,
                                 const ExpertLayer& layer) {
  const Training& training = pricing.job.training;
  const Seconds all = layer.before + layer.experts + layer.experts_input + layer.experts_weight + layer.before_input +
                      layer.before_weight;
  if (pricing.job.cluster.device.multiprocessors < 2 || all <= Seconds(0)) return 0.0;
  const Device left = left_beside_exchanges(pricing.job.cluster.device);
  const ComputeModel beside(left, training.precision, training.stack, training.fp8_recipe, pricing.compute.laws());
  const Seconds more = of_products(beside, training, operators) - of_products(pricing.compute, training, operators);
  return std::max(0.0, more / all);
}

Seconds pass_time(const Section& block) {
  return block.forward.total() + block.input_gradient.total() + block.weight_gradient.total() - block.tp_hidden;
}

// Reasons why the host cannot launch ahead when passes run in pairs.
struct HostWait {
  bool for_computation = false;
  Seconds behind_dispatch;
  Seconds pieces;  ///< cost of separating the pieces of both passes
};

// Each of the four pieces of either pass is a separate autograd call on its own stream that waits for one event and
// records another (Megatron Core, pipeline_parallel/utils.py, ScheduleNode), assumed to cost the host as much as two
// launches. Delayed weight gradients run without events.
Seconds host_time_of_pieces(const Stack& stack) {
  constexpr double kPieces = 8.0;
  constexpr double kCalls = 2.0;
  return stack.cuda_graphs == CudaGraphs::kFull ? Seconds(0) : stack.host_time_per_kernel * (kPieces * kCalls);
}

// From its second layer on, a row of pairs is periodic.
void add_pair_gain(const ExpertLayer& layer, const HostTime& host, const HostWait& wait, Seconds one_by_one,
                   Section& block) {
  constexpr int kUsual = 3;
  const PairedLayers shorter = paired_layers(layer, kUsual - 1);
  const PairedLayers longer = paired_layers(layer, kUsual);
  const Seconds device = longer.time - shorter.time;
  const Seconds launching = host.forward + host.backward + wait.pieces;
  Seconds each = device + waiting_for_host(launching, device);
  if (wait.for_computation) each += std::min(launching, device) * kInTurn;
  each += wait.behind_dispatch;
  const Seconds passes = layer.forward() + layer.backward();
  const auto ends = [](Seconds steady, Seconds of_three, Seconds three) {
    return std::max(Seconds(0), steady * static_cast<double>(kUsual) - (three - of_three));
  };
  block.pair_saved.each = std::max(Seconds(0), one_by_one - each);
  block.pair_saved.ends = ends(passes - device, longer.time, passes * static_cast<double>(kUsual));
  const Seconds exchanged = (layer.dispatch + layer.combine) * 2.0;
  block.pair_hidden.each = exchanged - (longer.exposed - shorter.exposed);
  block.pair_hidden.ends = ends(block.pair_hidden.each, longer.exposed, exchanged * static_cast<double>(kUsual));
}

}  // namespace

void add_expert_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block) {
  const Stack& stack = pricing.job.training.stack;
  block.expert_layer = expert_layer(pricing.job, block);
  const bool waits = !pricing.job.model.experts->capacity_factor && stack.cuda_graphs != CudaGraphs::kFull;
  const bool in_turn = waits && stack.experts_dispatcher != ExpertDispatcher::kHybridep;
  const HostTime host = host_time(pricing, operators);
  HostWait wait;
  wait.for_computation = in_turn;
  if (waits && !in_turn) wait.behind_dispatch = wait_behind_dispatch(pricing, operators);
  block.forward.compute += wait.behind_dispatch;
  const Seconds whole = block.input_gradient.total() + block.weight_gradient.total() - block.tp_hidden;
  const Seconds forward = in_turn ? std::min(host.forward, block.forward.total()) * kInTurn : Seconds(0);
  const Seconds backward = in_turn ? std::min(host.backward, whole) * kInTurn : Seconds(0);
  add_host_floor(pricing, operators, block);
  block.forward.compute += forward;
  block.input_gradient.compute += backward * 0.5;
  block.weight_gradient.compute += backward * 0.5;
  if (pricing.job.layout.ep > 1 && overlap_of_experts(pricing.job) != ExpertOverlap::kNone) {
    wait.pieces = host_time_of_pieces(stack);
    block.expert_layer.slower = slowdown_beside_exchanges(pricing, operators, block.expert_layer);
    add_pair_gain(block.expert_layer, host, wait, pass_time(block), block);
  }
}

}  // namespace flopcast
