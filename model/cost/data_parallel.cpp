#include "model/cost/data_parallel.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/expert_parallel.hpp"
#include "model/cost/gradient_buckets.hpp"
#include "model/cost/sharded_passes.hpp"

namespace flopcast {

namespace {

// Adam reads the gradient and reads and writes both moments and the fp32 weight, then writes the weight; the gradient
// norm reads the gradient once more, and clearing it writes it.
double optimizer_traffic_per_parameter(const Training& training) {
  const double state = 2 * optimizer_bytes_per_parameter(training);
  return state + 3 * training.stack.gradient_bytes + element_size(training.precision).value();
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
  const bool tied = pricing.job.model.tied_embeddings && pricing.job.layout.pp > 1 && table > 0.0;
  if (!tied) return;
  const double held = table / pricing.job.layout.gradient_shards();
  const Bytes bytes(held * pricing.job.training.stack.gradient_bytes);
  // The first and the last pipeline rank of a replica both hold the tied table.
  const GroupPlacement ends = two_pipeline_ranks(pricing, 0, pricing.job.layout.pp - 1);
  const Traffic shared = pricing.collective(Collective::kAllReduce, bytes, ends, 1);
  flush.embedding_reduction = shared.time;
  flush.dp += shared;
}

// Adds up the gradients of the two copies of a bidirectional schedule, as far as the rank still holds them.
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
  const Traffic shared = pricing.collective(Collective::kAllReduce, bytes, pair, 1);
  flush.gradient_reduction += shared.time;
  flush.dp += shared;
}

void add_gradient_norm(const PricingContext& pricing, FlushCosts& flush) {
  const Layout& layout = pricing.job.layout;
  GroupPlacement model_ranks;
  model_ranks.ranks = layout.tp * layout.pp * layout.gradient_shards();
  model_ranks.ranks_per_node = std::min(model_ranks.ranks, pricing.job.cluster.devices_per_node);
  model_ranks.nodes = (model_ranks.ranks + model_ranks.ranks_per_node - 1) / model_ranks.ranks_per_node;
  constexpr double kNormBytes = 4.0;
  const Traffic norm = pricing.collective(Collective::kAllReduce, Bytes(kNormBytes), model_ranks, 1);
  flush.gradient_norm = norm.time;
  flush.dp += norm;
}

// Everything leaves from and arrives at GPU 0.
void add_single_process_passes(const PricingContext& pricing, StageCosts& costs) {
  const Job& job = pricing.job;
  const double others = job.layout.dp - 1;
  if (others <= 0.0) return;
  constexpr double kTokenBytes = 8.0;
  const Bytes weights = element_size(job.training.precision) * costs.parameters;
  const Bytes gradients(job.training.stack.gradient_bytes * costs.parameters);
  const Bytes tokens(kTokenBytes * pricing.tokens());
  const Bytes outputs = element_size(job.training.precision) * (pricing.tokens() * job.model.vocab);
  const auto over_root_link = [&](Bytes bytes) { return pricing.communication.point_to_point(bytes, false, 1); };
  const Seconds forward = over_root_link((weights + tokens + outputs) * others);
  const Seconds backward = over_root_link((gradients + outputs) * others);
  costs.forward.dp_comm += forward;
  costs.input_gradient.dp_comm += backward;
  costs.dp += {forward + backward, (weights + tokens + outputs) * others, 5.0 * others};
  costs.gathered_gradients = outputs * others;
}

double held_parameters(const Layout& layout, int shards, double parameters, double expert_parameters) {
  const int expert_shards = std::max(1, shards / layout.ep);
  return (parameters - expert_parameters) / shards + expert_parameters / expert_shards;
}

}  // namespace

ModelStates model_states(const Layout& layout, const Training& training, double parameters, double expert_parameters) {
  const auto held = [&](int shards) { return held_parameters(layout, shards, parameters, expert_parameters); };
  ModelStates states;
  states.weights = element_size(training.precision) * held(layout.weight_shards());
  const Stack& stack = training.stack;
  const double element = element_size(training.precision).value();
  const double of_pass = stack.keeps_pass_gradients && stack.gradient_bytes > element ? element : 0.0;
  states.gradients = Bytes((stack.gradient_bytes + of_pass) * held(layout.gradient_shards()));
  states.optimizer = Bytes((optimizer_bytes_per_parameter(training) + stack.optimizer_gradient_bytes) *
                           held(layout.optimizer_shards()));
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

// What a pipeline rank holds of the model, over its stages.
struct Holdings {
  double parameters = 0.0;
  double experts = 0.0;
  double low_rank_elements = 0.0;
  double table = 0.0;
  Traffic buckets;

  bool as(const Holdings& other) const {
    return parameters == other.parameters && experts == other.experts && low_rank_elements == other.low_rank_elements &&
           table == other.table && buckets.time == other.buckets.time;
  }
};

std::vector<Holdings> holdings_of(const PricingContext& pricing, const StepCosts& costs) {
  std::vector<Holdings> ranks(static_cast<std::size_t>(pricing.job.layout.pp));
  for (int stage = 0; stage < pricing.map.stages(); ++stage) {
    const auto index = static_cast<std::size_t>(stage);
    const StageCosts& of_stage = costs.stages[index];
    Holdings& rank = ranks[static_cast<std::size_t>(pricing.map.rank_of_stage[index])];
    rank.parameters += of_stage.parameters;
    rank.experts += of_stage.expert_parameters;
    rank.low_rank_elements += of_stage.low_rank_elements;
    rank.table = std::max(rank.table, of_stage.embedding_parameters);
    rank.buckets += of_stage.bucket_traffic;
  }
  return ranks;
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
    const Bytes weight = element_size(training.precision);
    Traffic gather = pricing.replica_collective(Collective::kAllGather, weight * dense.parameters, pricing.replicas, 1);
    if (experts > 0.0) gather += pricing.replica_collective(Collective::kAllGather, weight * experts, expert_group, 1);
    flush.parameter_gather = gather.time;
    flush.dp += gather;
  }
  const double held = held_parameters(layout, layout.optimizer_shards(), flush.parameters, experts);
  add_copies_reduction(pricing, rank, held, flush);
  add_embedding_reduction(pricing, holdings.table, flush);
  add_gradient_norm(pricing, flush);
  const Bytes touched(held * optimizer_traffic_per_parameter(training));
  if (layout.offloads_optimizer()) {
    const Cluster& cluster = pricing.job.cluster;
    const Bytes moved = element_size(training.precision) * held + Bytes(training.stack.gradient_bytes * held);
    flush.optimizer = moved / cluster.host_bandwidth +
                      touched / (cluster.host_memory_bandwidth / static_cast<double>(cluster.devices_per_node));
  } else {
    flush.optimizer = pricing.compute.memory_bound(touched, 1);
  }
  return flush;
}

}  // namespace

std::vector<FlushCosts> price_flushes(const PricingContext& pricing, const StepCosts& costs) {
  const std::vector<Holdings> holdings = holdings_of(pricing, costs);
  std::vector<FlushCosts> ranks;
  ranks.reserve(holdings.size());
  for (std::size_t rank = 0; rank < holdings.size(); ++rank) {
    // Ranks between the ends of a pipeline mostly hold the same; with two copies the twin's place counts as well.
    const bool as_before = rank > 0 && pricing.map.copies() == 1 && holdings[rank].as(holdings[rank - 1]);
    ranks.push_back(as_before ? ranks.back() : price_flush(pricing, holdings[rank], static_cast<int>(rank)));
  }
  return ranks;
}

}  // namespace flopcast
