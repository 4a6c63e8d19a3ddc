#include "model/cost/data_parallel.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/axis_costs.hpp"

namespace flopcast {

namespace {

// Bytes of a weight in transit between replicas.
Bytes gathered_weight(const Training& training) {
  const bool narrow = training.precision == Precision::kFp8 && training.stack.fp8_parameters;
  return narrow ? Bytes(1) : element_size(training.precision);
}

// Adam reads the gradient, reads and writes both moments and the fp32 weight, and writes the weight; the gradient norm
// reads the gradient once more, and clearing it writes it.
double optimizer_traffic_per_parameter(const Training& training) {
  const double state = 2 * optimizer_bytes_per_parameter(training);
  return state + 3 * training.stack.gradient_bytes + element_size(training.precision).value();
}

// Bytes of state that muon and galore keep for this many trained parameters, in addition to
// optimizer_bytes_per_parameter.
double extra_optimizer_state(const Training& training, double parameters, const MatrixUpdate& matrices) {
  const double moment = training.stack.moment_bytes;
  const double others = std::max(0.0, parameters - matrices.parameters);
  if (training.optimizer == Optimizer::kMuon) return moment * others;
  if (training.optimizer != Optimizer::kGalore) return 0.0;
  return 2.0 * moment * (others + matrices.projected) + element_size(training.precision).value() * matrices.projections;
}

GroupPlacement two_pipeline_ranks(const PricingContext& pricing, int one, int other) {
  const Cluster& cluster = pricing.job.cluster;
  const bool crosses = pricing.grid.pipeline_hop_crosses_nodes(one, other, cluster);
  GroupPlacement pair;
  pair.ranks = 2;
  pair.nodes = crosses ? 2 : 1;
  pair.ranks_per_node = crosses ? 1 : 2;
  pair.groups_sharing_nics = std::min(cluster.devices_per_node, pricing.grid.stride(Axis::kPipeline));
  return pair;
}

void add_embedding_reduction(const PricingContext& pricing, double table, FlushCosts& flush) {
  const Transformer& model = pricing.job.model;
  const bool shared_table = model.tied_embeddings || model.mtp_layers > 0;
  if (!shared_table || pricing.job.layout.pp == 1 || table <= 0.0 ||
      head_state(pricing.job.training) != LayerState::kTrained)
    return;
  const Layout& layout = pricing.job.layout;
  const double held =
      table / (pricing.job.training.stack.for_realrun ? layout.optimizer_shards() : layout.gradient_shards());
  const Bytes bytes(held * pricing.job.training.stack.gradient_bytes);
  // The first and last pipeline rank of a replica both hold the tied table, or the embedding used by multi-token
  // prediction.
  const GroupPlacement ends = two_pipeline_ranks(pricing, 0, pricing.job.layout.pp - 1);
  const Traffic shared = pricing.collective(CollectiveKind::kAllReduce, bytes, ends, 1);
  flush.embedding_reduction = shared.time;
  flush.dp += shared;
}

// Sums the gradients of the two copies of a bidirectional schedule, as far as the rank holds them.
void add_copies_reduction(const PricingContext& pricing, int rank, double gradients, FlushCosts& flush) {
  if (pricing.map.copies() == 1) return;
  int other = rank;
  for (int stage = 0; stage < pricing.map.stages(); ++stage) {
    if (pricing.map.rank_of_stage[static_cast<std::size_t>(stage)] != rank) continue;
    const int twin = (stage + pricing.map.model_stages) % pricing.map.stages();
    other = pricing.map.rank_of_stage[static_cast<std::size_t>(twin)];
  }
  if (other == rank) return;
  const Bytes bytes(gradients * pricing.job.training.stack.gradient_bytes);
  const GroupPlacement pair = two_pipeline_ranks(pricing, rank, other);
  const Traffic shared = pricing.collective(CollectiveKind::kAllReduce, bytes, pair, 1);
  flush.gradient_reduction += shared.time;
  flush.dp += shared;
}

void add_gradient_norm(const PricingContext& pricing, FlushCosts& flush) {
  if (pricing.job.training.stack.for_realrun) return;
  const Layout& layout = pricing.job.layout;
  GroupPlacement model_ranks;
  model_ranks.ranks = layout.tp * layout.pp * layout.gradient_shards();
  model_ranks.ranks_per_node = std::min(model_ranks.ranks, pricing.job.cluster.devices_per_node);
  model_ranks.nodes = (model_ranks.ranks + model_ranks.ranks_per_node - 1) / model_ranks.ranks_per_node;
  constexpr double kNormBytes = 4.0;
  const Traffic norm = pricing.collective(CollectiveKind::kAllReduce, Bytes(kNormBytes), model_ranks, 1);
  flush.gradient_norm = norm.time;
  flush.dp += norm;
}

// All traffic leaves from or arrives at GPU 0.
void add_single_process_passes(const PricingContext& pricing, StageCosts& costs) {
  const Job& job = pricing.job;
  const double others = job.layout.dp - 1;
  if (others <= 0.0) return;
  constexpr double kTokenBytes = 8.0;
  const double trained = costs.parameters - costs.frozen.parameters;
  const Bytes weights = element_size(job.training.precision) * trained + costs.frozen.weights;
  const Bytes gradients(job.training.stack.gradient_bytes * trained);
  const Bytes tokens(kTokenBytes * pricing.tokens());
  const Bytes outputs = element_size(job.training.precision) * (pricing.tokens() * job.model.vocab);
  const auto over_root_link = [&](Bytes bytes) { return pricing.communication.point_to_point(bytes, false, 1); };
  const Seconds forward = over_root_link((weights + tokens + outputs) * others);
  const Seconds backward = over_root_link((gradients + outputs) * others);
  costs.forward.comm.dp += forward;
  costs.input_gradient.comm.dp += backward;
  costs.sent.dp += {forward + backward, (weights + tokens + outputs) * others, 5.0 * others};
  costs.gathered_gradients = outputs * others;
}

double held_parameters(const Layout& layout, int shards, double parameters, double expert_parameters) {
  const int folded = layout.tp / layout.expert_tensor_ranks();
  const int expert_shards = shards == 1 ? 1 : std::max(1, shards * folded / layout.ep);
  return (parameters - expert_parameters) / shards + expert_parameters / expert_shards;
}

// extra_optimizer_state of one rank's share.
double held_further_state(const Layout& layout, const Training& training, double parameters, double expert_parameters,
                          const MatrixUpdates& matrices) {
  const double dense = extra_optimizer_state(training, parameters - expert_parameters, matrices.dense);
  const double experts = extra_optimizer_state(training, expert_parameters, matrices.experts);
  return held_parameters(layout, layout.optimizer_shards(), dense + experts, experts);
}

}  // namespace

ModelStates model_states(const Layout& layout, const Training& training, double parameters, double expert_parameters,
                         const FrozenWeights& frozen, const MatrixUpdates* matrices) {
  const auto held = [&](int shards) {
    return held_parameters(layout, shards, parameters - frozen.parameters, expert_parameters - frozen.experts);
  };
  ModelStates states;
  states.weights =
      element_size(training.precision) * held(layout.weight_shards()) +
      Bytes(held_parameters(layout, layout.weight_shards(), frozen.weights.value(), frozen.expert_weights.value()));
  if (holds_reference(training)) {
    states.weights += element_size(training.precision) *
                      held_parameters(layout, layout.weight_shards(), parameters, expert_parameters);
  }
  const Stack& stack = training.stack;
  const double element = element_size(training.precision).value();
  const double of_pass = stack.keeps_pass_gradients && stack.gradient_bytes > element ? element : 0.0;
  states.gradients = Bytes((stack.gradient_bytes + of_pass) * held(layout.gradient_shards()));
  states.optimizer = Bytes((optimizer_bytes_per_parameter(training) + stack.optimizer_gradient_bytes) *
                           held(layout.optimizer_shards()));
  if (matrices != nullptr) {
    states.optimizer += Bytes(held_further_state(layout, training, parameters - frozen.parameters,
                                                 expert_parameters - frozen.experts, *matrices));
  }
  if (layout.offloads_optimizer()) states.optimizer = Bytes(0);
  return states;
}

void add_replica_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs) {
  const Layout& layout = pricing.job.layout;
  if (layout.data_parallel == DataParallel::kDataParallel) {
    add_single_process_passes(pricing, costs);
  } else if (layout.gradient_shards() > 1 && !runs.empty()) {
    add_sharded_passes(pricing, stage, runs, costs);
  }
}

namespace {

// A pipeline rank's part of the trained model, summed over its stages.
struct Holdings {
  double parameters = 0.0;
  double experts = 0.0;
  double low_rank_elements = 0.0;
  double table = 0.0;
  MatrixUpdates matrices;
  Traffic buckets;
  Seconds forward;  ///< of one microbatch through all its stages
  double tensors = 0.0;
  int layers = 0;
  int stages = 0;

  bool as(const Holdings& other) const {
    return parameters == other.parameters && matrices.dense.parameters == other.matrices.dense.parameters &&
           matrices.experts.parameters == other.matrices.experts.parameters && experts == other.experts &&
           low_rank_elements == other.low_rank_elements && table == other.table && tensors == other.tensors &&
           buckets.time == other.buckets.time && forward == other.forward;
  }
};

// Weights are gathered layer by layer during the first microbatches. With c stages per rank, the g/c of the first stage
// is hidden by its first pass, except for the first layer; the last stage is needed once pp microbatches have passed
// each stage before it.
Seconds exposed_gather(Seconds gather, const Holdings& holdings, int pipeline_ranks) {
  const double stages = holdings.stages;
  const Seconds pass = holdings.forward / stages;
  const Seconds first_layer = gather / std::max(1.0, static_cast<double>(holdings.layers));
  const Seconds last = gather - pass * ((stages - 1.0) * pipeline_ranks + 1.0);
  return std::max({first_layer, gather / stages - pass, last});
}

std::vector<Holdings> holdings_of(const PricingContext& pricing, const StepCosts& costs) {
  std::vector<Holdings> ranks(static_cast<std::size_t>(pricing.job.layout.pp));
  for (int stage = 0; stage < pricing.map.stages(); ++stage) {
    const auto index = static_cast<std::size_t>(stage);
    const StageCosts& of_stage = costs.stages[index];
    Holdings& rank = ranks[static_cast<std::size_t>(pricing.map.rank_of_stage[index])];
    rank.parameters += of_stage.parameters - of_stage.frozen.parameters;
    rank.experts += of_stage.expert_parameters - of_stage.frozen.experts;
    rank.low_rank_elements += of_stage.low_rank_elements;
    rank.table = std::max(rank.table, of_stage.embedding_parameters);
    rank.matrices.add(of_stage.matrices, 1.0);
    rank.buckets += of_stage.bucket_traffic;
    rank.forward += of_stage.forward.total();
    rank.tensors += of_stage.tensors;
    rank.layers += of_stage.layers;
    ++rank.stages;
  }
  return ranks;
}

// The ranks over which a gradient is summed: those that share its weights, as shards and as copies of the shards.
struct ReplicaGroups {
  GroupPlacement shards;
  GroupPlacement copies;
};

ReplicaGroups sharded_groups(const PricingContext& pricing, bool of_experts) {
  const Layout& layout = pricing.job.layout;
  const Cluster& cluster = pricing.job.cluster;
  if (layout.data_parallel != DataParallel::kHsdp) {
    return {of_experts ? expert_replicas(pricing) : pricing.replicas, {}};
  }
  const int ep = of_experts ? layout.ep : 1;
  return {pricing.grid.expert_shard_placement(ep, layout.shards, cluster),
          pricing.grid.expert_replica_placement(std::max(layout.shards, ep), cluster)};
}

// Products of whole matrices, and the traffic that collects gradients sharded within them.
Traffic matrix_products(const PricingContext& pricing, const MatrixUpdates& matrices) {
  const Layout& layout = pricing.job.layout;
  Traffic products;
  for (const bool of_experts : {false, true}) {
    const MatrixUpdate& update = of_experts ? matrices.experts : matrices.dense;
    if (update.parameters <= 0.0) continue;
    // A rank's share of one parameter.
    const double share = held_parameters(layout, layout.optimizer_shards(), 1.0, of_experts ? 1.0 : 0.0);
    products.time += update.products * share;
    if (layout.gradient_shards() == 1) continue;
    const Bytes held = element_size(pricing.job.training.precision) * (update.parameters * share);
    products +=
        pricing.replica_collective(CollectiveKind::kAllToAll, held, sharded_groups(pricing, of_experts).shards, 2);
  }
  return products;
}

// Host time of a step beyond its microbatches. Full-iteration CUDA graphs remove two thirds of the fixed part,
// estimated from golden values of Megatron-LM's functional tests. A sharded optimizer steps over its share of the
// tensors.
Seconds host_time_of_step(const Job& job, double tensors) {
  const Stack& stack = job.training.stack;
  constexpr double kCaptured = 2.0 / 3.0;
  const double left = stack.cuda_graphs == CudaGraphs::kFull ? 1.0 - kCaptured : 1.0;
  const double own = tensors / static_cast<double>(std::max(1, job.layout.optimizer_shards()));
  return (stack.host_time_per_step * left + stack.host_time_per_tensor * own) * (1.0 / job.cluster.host_speed);
}

FlushCosts price_flush(const PricingContext& pricing, const Holdings& holdings, int rank) {
  const Layout& layout = pricing.job.layout;
  const Training& training = pricing.job.training;
  FlushCosts flush;
  flush.parameters = holdings.parameters;
  flush.dp = holdings.buckets;
  const double experts = holdings.experts;
  GradientAmount dense;
  dense.low_rank_elements = holdings.low_rank_elements;
  dense.parameters = flush.parameters - experts;
  if (dense.low_rank_elements <= 0.0) dense.low_rank_elements = dense.parameters;
  const bool at_once = layout.gradient_shards() == 1 && layout.data_parallel != DataParallel::kDataParallel &&
                       !reduces_in_buckets(pricing.job);
  const GroupPlacement expert_group = experts > 0.0 ? expert_replicas(pricing) : GroupPlacement{};
  if (at_once) {
    Traffic reduced = reduce_gradients(pricing, dense, pricing.replicas);
    reduced += reduce_gradients(pricing, {experts, experts}, expert_group);
    flush.gradient_reduction = reduced.time;
    flush.dp += reduced;
  }
  if (layout.optimizer_shards() > 1 && layout.weight_shards() == 1) {
    const Bytes weight = gathered_weight(training);
    Traffic gather =
        pricing.replica_collective(CollectiveKind::kAllGather, weight * dense.parameters, pricing.replicas, 1);
    if (experts > 0.0)
      gather += pricing.replica_collective(CollectiveKind::kAllGather, weight * experts, expert_group, 1);
    if (training.stack.gathers_each_parameter) {
      // Channels that NCCL opens on eight Hopper GPUs with NVLink, as in its estimate of NVLS.
      constexpr double kChannels = 16.0;
      const Traffic smallest = pricing.replica_collective(CollectiveKind::kAllGather, Bytes(1), pricing.replicas, 1);
      gather.time += smallest.time * std::max(0.0, holdings.tensors / kChannels - 1.0);
    }
    flush.parameter_gather = gather.time;
    if (training.stack.overlap_parameter_gather) {
      const Seconds exposed = exposed_gather(gather.time, holdings, layout.pp);
      flush.parameter_gather = exposed + (gather.time - exposed) * overlap_slowdown(pricing.job.cluster.device);
    }
    flush.dp += gather;
  }
  flush.replicas = flush.dp;
  const double held = held_parameters(layout, layout.optimizer_shards(), flush.parameters, experts);
  add_copies_reduction(pricing, rank, held, flush);
  add_embedding_reduction(pricing, holdings.table, flush);
  add_gradient_norm(pricing, flush);
  const Bytes touched(held * optimizer_traffic_per_parameter(training) +
                      2 * held_further_state(layout, training, flush.parameters, experts, holdings.matrices));
  if (layout.offloads_optimizer()) {
    const Cluster& cluster = pricing.job.cluster;
    const Bytes moved = element_size(training.precision) * held + Bytes(training.stack.gradient_bytes * held);
    flush.optimizer = moved / cluster.host_bandwidth +
                      touched / (cluster.host_memory_bandwidth / static_cast<double>(cluster.devices_per_node));
  } else {
    const Traffic products = matrix_products(pricing, holdings.matrices);
    flush.optimizer = (training.optimizer == Optimizer::kAdam ? pricing.compute.adam_update(touched)
                                                              : pricing.compute.memory_bound(touched, 1)) +
                      products.time;
    flush.dp.sent_per_rank += products.sent_per_rank;
    flush.dp.messages += products.messages;
  }
  flush.optimizer += host_time_of_step(pricing.job, holdings.tensors);
  return flush;
}

}  // namespace

std::vector<FlushCosts> price_flushes(const PricingContext& pricing, const StepCosts& costs) {
  const std::vector<Holdings> holdings = holdings_of(pricing, costs);
  std::vector<FlushCosts> ranks;
  ranks.reserve(holdings.size());
  for (std::size_t rank = 0; rank < holdings.size(); ++rank) {
    // Inner pipeline ranks mostly hold the same; with two copies, the twin's position matters too.
    const bool as_before = rank > 0 && pricing.map.copies() == 1 && holdings[rank].as(holdings[rank - 1]);
    ranks.push_back(as_before ? ranks.back() : price_flush(pricing, holdings[rank], static_cast<int>(rank)));
  }
  return ranks;
}

namespace {

struct UnitTraffic {
  Traffic gather;
  Traffic scatter;
};

UnitTraffic traffic_of(const PricingContext& pricing, const Section& unit, bool gathers) {
  const Training& training = pricing.job.training;
  UnitTraffic traffic;
  for (const bool of_experts : {false, true}) {
    const double parameters = of_experts ? unit.expert_parameters : unit.parameters - unit.expert_parameters;
    if (parameters <= 0.0) continue;
    const FrozenWeights& frozen = unit.frozen;
    const double trained = parameters - (of_experts ? frozen.experts : frozen.parameters - frozen.experts);
    const Bytes as_stored = of_experts ? frozen.expert_weights : frozen.weights - frozen.expert_weights;
    const ReplicaGroups groups = sharded_groups(pricing, of_experts);
    const Bytes weights = gathered_weight(training) * trained + as_stored;
    const Bytes gradients(trained * training.stack.reduced_gradient_bytes());
    if (gathers) traffic.gather += pricing.replica_collective(CollectiveKind::kAllGather, weights, groups.shards, 1);
    if (gathers && !of_experts && trained <= 0.0) traffic.gather.time += training.stack.gather_allocation;
    if (trained <= 0.0) continue;
    traffic.scatter += pricing.replica_collective(CollectiveKind::kReduceScatter, gradients, groups.shards, 1);
    if (gathers && !of_experts) traffic.gather.time += training.stack.gather_allocation;
    if (groups.copies.ranks > 1) {
      const Bytes shard = gradients / groups.shards.ranks;
      traffic.scatter += pricing.replica_collective(CollectiveKind::kAllReduce, shard, groups.copies, 1);
    }
  }
  return traffic;
}

Seconds beyond(Seconds whole, Seconds part) {
  return std::max(Seconds(0), whole - part);
}

// Equal consecutive units of a pass: traffic and computation of one of them.
struct RunInPass {
  Seconds gather;
  Seconds scatter;
  Seconds computation;
  double count = 0.0;
};

// Traffic of the units that computation does not hide in an isolated pass. During a unit's computation, the next unit
// is gathered and the previous one scattered.
Seconds exposed_alone(const std::vector<RunInPass>& runs) {
  Seconds exposed = runs.front().gather + runs.back().scatter;
  for (std::size_t index = 0; index < runs.size(); ++index) {
    const RunInPass& run = runs[index];
    const Seconds before = index > 0 ? runs[index - 1].scatter : Seconds(0);
    const Seconds after = index + 1 < runs.size() ? runs[index + 1].gather : Seconds(0);
    if (run.count == 1.0) {
      exposed += beyond(before + after, run.computation);
    } else {
      exposed += beyond(before + run.gather, run.computation) + beyond(run.scatter + after, run.computation);
      exposed += beyond(run.scatter + run.gather, run.computation) * (run.count - 2.0);
    }
  }
  return exposed;
}

Seconds sum_of(const std::vector<RunInPass>& runs, Seconds RunInPass::*time) {
  Seconds sum;
  for (const RunInPass& run : runs) sum += run.*time * run.count;
  return sum;
}

std::vector<RunInPass> without(std::vector<RunInPass> runs, Seconds RunInPass::*time) {
  for (RunInPass& run : runs) run.*time = Seconds(0);
  return runs;
}

// Mean over `rows` consecutive passes of a rank, one of which has no neighbours.
Seconds mean_exposed(Seconds alone, Seconds among_others, double rows) {
  return among_others + (alone - among_others) / rows;
}

// Forward passes of a pipeline rank in a step.
double passes_of_rank(const PricingContext& pricing) {
  const Layout& layout = pricing.job.layout;
  return std::max(1.0, static_cast<double>(layout.microbatches()) * pricing.map.model_stages / layout.pp);
}

// True if each expert is sharded over several ranks; otherwise a group of shards holds every expert whole.
bool cuts_experts(const PricingContext& pricing) {
  return sharded_groups(pricing, true).shards.ranks > 1;
}

double cut_parameters(const Section& unit, bool with_experts) {
  return unit.parameters - (with_experts ? 0.0 : unit.expert_parameters);
}

// The current and the prefetched unit hold whole weights; the gradient of one unit is whole until it is scattered. In a
// row of passes these are whole stages: the current one and, if the rank has more than one, a neighbour.
void add_gathered_memory(const PricingContext& pricing, bool in_a_row, bool again, const Section& unit,
                         StageCosts& costs) {
  const Bytes weight = element_size(pricing.job.training.precision);
  const Bytes gradient(pricing.job.training.stack.gradient_bytes);
  const bool gathers = pricing.job.layout.weight_shards() > 1;
  const double neighbours = pricing.map.stages() > pricing.job.layout.pp ? 2.0 : 1.0;
  const bool with_experts = cuts_experts(pricing);
  const auto trained_of = [with_experts](const auto& held) {
    const double trained = held.parameters - held.frozen.parameters;
    return with_experts ? trained : trained - (held.expert_parameters - held.frozen.experts);
  };
  const auto bytes_of = [&](const auto& held) {
    return weight * trained_of(held) + held.frozen.weights - (with_experts ? Bytes(0) : held.frozen.expert_weights);
  };
  const Bytes stage = bytes_of(costs);
  const Bytes by_units = again ? std::min(bytes_of(unit) * 2.0, stage) : stage;
  if (gathers) costs.gathered_weights = in_a_row ? stage * neighbours : by_units;
  costs.gathered_gradients = gradient * (in_a_row ? neighbours * trained_of(costs) : trained_of(unit));
}

}  // namespace

void add_sharded_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs) {
  const Layout& layout = pricing.job.layout;
  const bool gathers = layout.weight_shards() > 1;
  const bool again = gathers && layout.reshard_after_forward;
  const int row =
      pricing.map.passes_in_a_row.empty() ? 1 : pricing.map.passes_in_a_row[static_cast<std::size_t>(stage)];
  const double share = 1.0 / row;  // of a gather per pass
  std::vector<RunInPass> forward;
  std::vector<RunInPass> backward;
  const bool with_experts = cuts_experts(pricing);
  const Section* largest = runs.front().section;
  for (const UnitRun& run : runs) {
    const UnitTraffic traffic = traffic_of(pricing, *run.section, gathers);
    const double count = run.count;
    forward.push_back({traffic.gather.time, Seconds(0), run.forward(), count});
    backward.push_back({again ? traffic.gather.time : Seconds(0), traffic.scatter.time, run.backward(), count});
    costs.sent.dp +=
        scaled(traffic.gather, ((again ? 2.0 : 1.0) + gradient_free_passes(pricing.job.training)) * share * count);
    costs.sent.dp += scaled(traffic.scatter, share * count);
    if (cut_parameters(*run.section, with_experts) > cut_parameters(*largest, with_experts)) largest = run.section;
  }
  std::reverse(backward.begin(), backward.end());
  const double rows = std::max(1.0, passes_of_rank(pricing) / row);
  const auto charge = [&](Seconds& pass, Seconds alone, Seconds among_others) {
    pass += mean_exposed(alone, among_others, rows) * share;
  };
  const Seconds gathered = sum_of(forward, &RunInPass::gather);
  const Seconds gathered_again = sum_of(backward, &RunInPass::gather);
  const Seconds scattered = sum_of(backward, &RunInPass::scatter);
  const Seconds computed = sum_of(forward, &RunInPass::computation) * static_cast<double>(row);
  charge(costs.forward.comm.dp, exposed_alone(forward), beyond(gathered, computed));
  if (gathers || pricing.job.training.stack.overlap_gradient_reduction) {
    const Seconds computed_back = sum_of(backward, &RunInPass::computation) * static_cast<double>(row);
    const Seconds idle_network = beyond(computed, gathered) + beyond(computed_back, gathered_again);
    const Seconds among_others = beyond(gathered_again, computed_back) + beyond(scattered, idle_network);
    // The first backward pass of a row gathers, the last one scatters.
    const Seconds alone = row == 1 ? exposed_alone(backward)
                                   : exposed_alone(without(backward, &RunInPass::scatter)) +
                                         exposed_alone(without(backward, &RunInPass::gather));
    charge(costs.input_gradient.comm.dp, alone, among_others);
  } else {
    costs.input_gradient.comm.dp += scattered * share;
  }
  add_gathered_memory(pricing, row > 1, again, *largest, costs);
}

namespace {

void offload_activations(const PricingContext& pricing, StageCosts& costs) {
  if (!pricing.job.layout.offloads_activations()) return;
  const Seconds transfer = costs.activation / pricing.job.cluster.host_bandwidth;
  const Seconds backward =
      costs.recompute.total() + costs.input_gradient.total() + costs.weight_gradient.total() - costs.tp_hidden;
  costs.forward.offload = std::max(Seconds(0), transfer - costs.forward.total());
  costs.input_gradient.offload = std::max(Seconds(0), transfer - backward);
  const double kept = std::min(1.0, 2.0 / std::max(1, costs.layers));
  costs.offload_buffer = costs.activation * kept;
  costs.activation = Bytes(0);
}

}  // namespace

void finish_stage(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs) {
  for (const UnitRun& run : runs) costs.tensors += static_cast<double>(run.section->gradients.size()) * run.count;
  add_replica_passes(pricing, stage, runs, costs);
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
    if (op.parameters <= op.frozen_parameters) continue;
    pieces.push_back({gradient_amount(op, layout), op.of_experts, total.value() > 0.0 ? done / total : 1.0});
  }
  return pieces;
}

}  // namespace flopcast
