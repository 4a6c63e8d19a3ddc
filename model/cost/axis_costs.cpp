#include "model/cost/axis_costs.hpp"

#include <algorithm>

namespace flopcast {

namespace {

// Pairs of a gather and a reduce-scatter (or all-reduces) of the hidden states in a block's forward pass: one for
// attention, one for the dense MLP or shared experts. Routed tokens have their own collectives.
double collective_pairs(const Job& job, BlockKind kind) {
  const bool behind_attention =
      kind == BlockKind::kDense || job.model.experts->shared > 0 || !job.layout.sequence_parallel;
  return behind_attention ? 2.0 : 1.0;
}

// Number of a block's gathers whose linear or adapter has a weight gradient.
double gathers_for_weights(const std::vector<Operator>& operators, double pairs) {
  const auto any = [&operators](auto holds) { return std::any_of(operators.begin(), operators.end(), holds); };
  if (!any([](const Operator& op) { return op.frozen; })) return pairs;
  const bool attention =
      any([](const Operator& op) { return op.name == "qkv adapter" || op.name == "latent adapter"; });
  const bool behind_it = any([](const Operator& op) { return op.name == "up adapter"; });
  return std::min(pairs, (attention ? 1.0 : 0.0) + (behind_it ? 1.0 : 0.0));
}

}  // namespace

void add_block_collectives(const PricingContext& pricing, BlockKind kind, const std::vector<Operator>& operators,
                           Section& block) {
  const Bytes bytes = pricing.hidden_bytes();
  const GroupPlacement& group = pricing.tp_group;
  Traffic forward;
  Traffic backward;
  const Training& training = pricing.job.training;
  const double pairs = collective_pairs(pricing.job, kind);
  if (pricing.job.layout.sequence_parallel) {
    // Operands that are cast to 8 bits anyway are gathered in 8 bits; sums are not.
    const bool narrow = training.precision == Precision::kFp8 && training.stack.fp8_gathers;
    const Traffic gathered = pricing.collective(CollectiveKind::kAllGather, bytes * (narrow ? 0.5 : 1.0), group, pairs);
    const Traffic scattered = pricing.collective(CollectiveKind::kReduceScatter, bytes, group, pairs);
    forward = gathered;
    forward += scattered;
    backward = forward;
    const double again = gathers_for_weights(operators, pairs) / pairs;
    backward += scaled(gathered, again);
    block.tensor.gather = gathered.time * (again / pairs);
    block.tensor.sum = scattered.time / pairs;
    if (training.stack.overlap_tp_in_pieces) block.tp_in_pieces = forward.time;
  } else {
    forward = pricing.collective(CollectiveKind::kAllReduce, bytes, group, pairs);
    backward = forward;
    block.tensor.sum = backward.time / pairs;
  }
  block.tensor.has_mlp = pairs > 1.0;
  block.forward.comm.tp += forward.time;
  block.input_gradient.comm.tp += backward.time;
  block.sent.tp += forward;
  block.sent.tp += backward;
}

void add_embedding_collectives(const PricingContext& pricing, LayerState state, Section& embedding) {
  const bool sharded = pricing.job.layout.sequence_parallel;
  const Bytes bytes = pricing.hidden_bytes();
  const Traffic forward = pricing.collective(sharded ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
                                             bytes, pricing.tp_group, 1);
  embedding.forward.comm.tp += forward.time;
  embedding.sent.tp += forward;
  if (sharded && state == LayerState::kTrained) {
    const Traffic backward = pricing.collective(CollectiveKind::kAllGather, bytes, pricing.tp_group, 1);
    embedding.input_gradient.comm.tp += backward.time;
    embedding.sent.tp += backward;
  }
}

void add_head_collectives(const PricingContext& pricing, Section& head) {
  const bool sharded = pricing.job.layout.sequence_parallel;
  const Bytes bytes = pricing.hidden_bytes();
  const GroupPlacement& group = pricing.tp_group;
  if (sharded) {
    const Traffic forward = pricing.collective(CollectiveKind::kAllGather, bytes, group, 1);
    head.forward.comm.tp += forward.time;
    head.sent.tp += forward;
  }
  const Traffic backward =
      pricing.collective(sharded ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce, bytes, group, 1);
  head.input_gradient.comm.tp += backward.time;
  head.sent.tp += backward;
  constexpr double kLossReductions = 3.0;
  const Traffic loss =
      pricing.collective(CollectiveKind::kAllReduce, Bytes(kFp32Bytes * pricing.tokens()), group, kLossReductions);
  head.forward.comm.tp += loss.time;
  head.sent.tp += loss;
}

Traffic adapter_exchange(const PricingContext& pricing, const std::vector<Operator>& operators,
                         const std::optional<RecomputeModules>& of_modules) {
  Traffic pass;
  for (const Operator& op : operators) {
    if (op.exchanged <= Bytes(0) || (of_modules && (op.redone_with & *of_modules).none())) continue;
    pass += pricing.collective(CollectiveKind::kAllGather, op.exchanged, pricing.tp_group, 1);
  }
  return pass;
}

void add_adapter_collectives(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block) {
  const Traffic pass = adapter_exchange(pricing, operators, {});
  block.forward.comm.tp += pass.time;
  block.input_gradient.comm.tp += pass.time;
  block.sent.tp += scaled(pass, 2);
}

Traffic recomputed_collectives(const PricingContext& pricing, BlockKind kind, const Section& block) {
  if (pricing.job.layout.tensor_parallel != TensorParallel::k1d) return block.grid_forward;
  const double pairs = collective_pairs(pricing.job, kind);
  const Traffic again = pricing.collective(CollectiveKind::kAllReduce, pricing.hidden_bytes(), pricing.tp_group, pairs);
  if (!pricing.job.layout.sequence_parallel) return again;
  return {block.forward.comm.tp, again.sent_per_rank, 2.0 * pairs};
}

double share_redone_selectively(const Job& job, BlockKind kind) {
  if (!job.layout.recompute_modules) return 0.0;
  const auto redone = [&](RecomputeModule module) { return (*job.layout.recompute_modules & bit_of(module)).any(); };
  const double pairs = collective_pairs(job, kind);
  if (kind == BlockKind::kDense) return redone(RecomputeModule::kMlp) ? 1.0 / pairs : 0.0;
  const bool shared = job.model.experts->shared > 0 && redone(RecomputeModule::kSharedExperts);
  return shared || redone(RecomputeModule::kMoe) ? (pairs - 1.0) / pairs : 0.0;
}

namespace {

// The ranks of the grid fill its rows first, then its columns, then its depth.
struct GridLines {
  GroupPlacement row;
  GroupPlacement column;
  GroupPlacement depth;
};

GroupPlacement line(const PricingContext& pricing, int ranks, int stride) {
  const Cluster& cluster = pricing.job.cluster;
  const int step = stride * pricing.grid.stride(Axis::kTensor);
  GroupPlacement placement;
  placement.ranks = ranks;
  placement.ranks_per_node = std::max(1, std::min(ranks, cluster.devices_per_node / step));
  placement.nodes = (ranks + placement.ranks_per_node - 1) / placement.ranks_per_node;
  const int on_node = std::min(cluster.devices_per_node, pricing.grid.ranks());
  placement.groups_sharing_nics = std::max(1, on_node / placement.ranks_per_node);
  return placement;
}

TensorGrid grid_of(const Layout& layout) {
  return tensor_grid(layout.tensor_parallel, layout.tp, layout.tensor_depth);
}

GridLines lines_of(const PricingContext& pricing) {
  const Layout& layout = pricing.job.layout;
  const TensorGrid grid = grid_of(layout);
  const int depth = layout.tensor_parallel == TensorParallel::k3d ? grid.q : grid.depth;
  return {line(pricing, grid.q, 1), line(pricing, grid.q, grid.q), line(pricing, depth, grid.q * grid.q)};
}

Traffic gather(const PricingContext& pricing, double elements, const GroupPlacement& group) {
  const Bytes bytes = element_size(pricing.job.training.precision) * elements;
  return pricing.collective(CollectiveKind::kAllGather, bytes, group, 1);
}

Traffic reduce(const PricingContext& pricing, double elements, const GroupPlacement& group) {
  const Bytes bytes = element_size(pricing.job.training.precision) * elements;
  return pricing.collective(CollectiveKind::kReduceScatter, bytes, group, 1);
}

void add_to(Seconds& pass, const Traffic& traffic, Section& section) {
  pass += traffic.time;
  section.sent.tp += traffic;
  if (&pass == &section.forward.comm.tp) section.grid_forward += traffic;
}

void add_linear(const PricingContext& pricing, const GridLines& lines, const Operator& op, Section& section) {
  const Layout& layout = pricing.job.layout;
  const TensorGrid grid = grid_of(layout);
  const bool cubic = layout.tensor_parallel == TensorParallel::k3d;
  const double inputs = static_cast<double>(op.shape.k) * (cubic ? grid.q : 1);
  const double outputs = static_cast<double>(op.shape.n) * grid.q;
  const GridPanels panels = grid_panels(layout.tensor_parallel, grid, pricing.tokens(), inputs, outputs);
  Seconds& forward = section.forward.comm.tp;
  Seconds& input_gradient = section.input_gradient.comm.tp;
  Seconds& weight_gradient = section.weight_gradient.comm.tp;
  const auto gathered = [&](double elements, const GroupPlacement& group) { return gather(pricing, elements, group); };
  const auto reduced = [&](double elements, const GroupPlacement& group) { return reduce(pricing, elements, group); };
  add_to(forward, gathered(panels.gathered_input, lines.row), section);
  add_to(forward, gathered(panels.gathered_weight, lines.column), section);
  if (cubic) {
    add_to(forward, reduced(panels.reduced_output, lines.depth), section);
    add_to(input_gradient, gathered(panels.reduced_output, lines.depth), section);
    add_to(input_gradient, reduced(panels.gathered_input, lines.row), section);
    add_to(weight_gradient, reduced(panels.gathered_weight, lines.column), section);
    return;
  }
  add_to(input_gradient, gathered(panels.gathered_weight, lines.column), section);
  add_to(input_gradient, reduced(panels.gathered_input, lines.row), section);
  add_to(weight_gradient, gathered(panels.gathered_input, lines.row), section);
  add_to(weight_gradient, reduced(panels.gathered_weight, lines.column), section);
  const Bytes part = element_size(pricing.job.training.precision) * panels.summed_over_depth;
  add_to(weight_gradient, pricing.collective(CollectiveKind::kAllReduce, part, lines.depth, 1), section);
}

bool is_norm(const Operator& op) {
  return op.name.ends_with("norm");
}

}  // namespace

GridPanels grid_panels(TensorParallel form, const TensorGrid& grid, double tokens, double inputs, double outputs) {
  const double q = grid.q;
  GridPanels panels;
  if (form == TensorParallel::k3d) {
    panels.gathered_input = tokens * inputs / (q * q);
    panels.gathered_weight = inputs * outputs / (q * q);
    panels.reduced_output = tokens * outputs / (q * q);
    return panels;
  }
  panels.gathered_input = tokens * inputs / (q * grid.depth);
  panels.gathered_weight = inputs * outputs / q;
  panels.summed_over_depth = inputs * outputs / (q * q);
  return panels;
}

void add_grid_collectives(const PricingContext& pricing, const std::vector<Operator>& operators, Section& section) {
  const GridLines lines = lines_of(pricing);
  const double tokens = pricing.tokens() / grid_of(pricing.job.layout).token_parts;
  for (const Operator& op : operators) {
    if (op.kind == OperatorKind::kLinear) add_linear(pricing, lines, op, section);
    if (!is_norm(op)) continue;
    // Sums per token and direction: mean and variance forward, two projections of the gradient backward; RMSNorm needs
    // one of each.
    const double sums = pricing.job.model.norm == Norm::kRmsNorm ? 1.0 : 2.0;
    const Traffic statistics =
        pricing.collective(CollectiveKind::kAllReduce, Bytes(sums * kFp32Bytes * tokens), lines.row, 1);
    add_to(section.forward.comm.tp, statistics, section);
    add_to(section.input_gradient.comm.tp, statistics, section);
  }
}

void add_grid_embedding(const PricingContext& pricing, Section& embedding) {
  const TensorGrid grid = grid_of(pricing.job.layout);
  const GridLines lines = lines_of(pricing);
  const double elements = pricing.tokens() / grid.token_parts * pricing.job.model.hidden;
  add_to(embedding.forward.comm.tp, reduce(pricing, elements, lines.column), embedding);
  add_to(embedding.weight_gradient.comm.tp, gather(pricing, elements, lines.column), embedding);
  const double table = static_cast<double>(pricing.job.model.vocab) * pricing.job.model.hidden / (grid.q * grid.q);
  if (pricing.job.layout.tensor_parallel == TensorParallel::k3d) {
    add_to(embedding.forward.comm.tp, gather(pricing, table, lines.row), embedding);
    add_to(embedding.weight_gradient.comm.tp, reduce(pricing, table, lines.row), embedding);
    return;
  }
  const Bytes part = element_size(pricing.job.training.precision) * table;
  add_to(embedding.weight_gradient.comm.tp, pricing.collective(CollectiveKind::kAllReduce, part, lines.depth, 1),
         embedding);
}

void add_grid_loss(const PricingContext& pricing, Section& head) {
  constexpr double kLossReductions = 3.0;
  const double tokens = pricing.tokens() / grid_of(pricing.job.layout).token_parts;
  add_to(head.forward.comm.tp,
         pricing.collective(CollectiveKind::kAllReduce, Bytes(kFp32Bytes * tokens), lines_of(pricing).row,
                            kLossReductions),
         head);
}

namespace {

constexpr double kRingBackward = 2.0;  // K and V and their gradients

// Computation that merges the partial results of a ring, at every step after the first.
void add_merges(const PricingContext& pricing, double steps, Section& block) {
  const Job& job = pricing.job;
  const Stack& stack = job.training.stack;
  if (stack.ring_merge_forward_bytes <= 0.0 && stack.ring_merge_backward_bytes <= 0.0) return;
  const double elements = pricing.tokens() * job.model.context_width() / job.layout.tp;
  const auto merged = [&](double bytes) { return pricing.compute.memory_bound(Bytes(elements * bytes), 1) * steps; };
  block.forward.compute += merged(stack.ring_merge_forward_bytes);
  block.input_gradient.compute += merged(stack.ring_merge_backward_bytes);
}

void add_ring(const PricingContext& pricing, const GroupPlacement& group, Section& block) {
  const Job& job = pricing.job;
  const Bytes step = element_size(job.training.precision) *
                     (pricing.tokens() * (job.model.key_width() + job.model.value_width()) / job.layout.tp);
  const Seconds hop = pricing.communication.point_to_point(step, group.crosses_nodes(), group.groups_sharing_nics);
  const double steps = group.ranks - 1;
  const Seconds forward = hop * steps;
  const Seconds backward = hop * (steps * kRingBackward);
  block.forward.comm.cp += std::max(Seconds(0), forward - block.attention);
  // Covered for at most the duration of the backward pass: otherwise faster memory would expose more of the ring than
  // it saves.
  const Seconds covered = std::min(block.attention * kRingBackward, block.attention_backward);
  block.input_gradient.comm.cp += std::max(Seconds(0), backward - covered);
  const Traffic sent{forward, step * steps, steps};
  block.context_forward += sent;
  block.sent.cp += scaled(sent, 1.0 + kRingBackward);
  add_merges(pricing, steps, block);
}

// K and V of the whole sequence are gathered in the forward and again in the backward pass, where their gradients are
// reduce-scattered.
void add_gathers(const PricingContext& pricing, const GroupPlacement& group, Section& block) {
  const Job& job = pricing.job;
  const Bytes whole =
      element_size(job.training.precision) *
      (pricing.tokens() * job.layout.cp * (job.model.key_width() + job.model.value_width()) / job.layout.tp);
  const Traffic gathered = pricing.collective(CollectiveKind::kAllGather, whole, group, 1);
  const Traffic scattered = pricing.collective(CollectiveKind::kReduceScatter, whole, group, 1);
  block.forward.comm.cp += gathered.time;
  block.input_gradient.comm.cp += gathered.time + scattered.time;
  block.context_forward += gathered;
  block.sent.cp += scaled(gathered, 2.0);
  block.sent.cp += scattered;
}

void add_all_to_alls(const PricingContext& pricing, const GroupPlacement& group, Section& block) {
  const Job& job = pricing.job;
  const Bytes column = element_size(job.training.precision) * (pricing.tokens() / job.layout.tp);
  const Transformer& model = job.model;
  for (const int width : {model.attention_width(), model.key_width(), model.value_width(), model.context_width()}) {
    const Bytes buffer = column * static_cast<double>(width);
    const Seconds exchange = pricing.communication.all_to_all(buffer, group);
    block.forward.comm.cp += exchange;
    block.input_gradient.comm.cp += exchange;
    const Traffic sent{exchange, all_to_all_sent_per_rank(buffer, group.ranks), static_cast<double>(group.ranks - 1)};
    constexpr double kPasses = 2.0;
    block.context_forward += sent;
    block.sent.cp += scaled(sent, kPasses);
  }
}

}  // namespace

void add_context_exchange(const PricingContext& pricing, Section& block) {
  const Layout& layout = pricing.job.layout;
  if (layout.cp == 1) return;
  const Cluster& cluster = pricing.job.cluster;
  const GroupPlacement group = pricing.grid.placement(Axis::kContext, cluster);
  switch (layout.context_parallel) {
    case ContextParallel::kRing:
      return add_ring(pricing, group, block);
    case ContextParallel::kUlysses:
      return add_all_to_alls(pricing, group, block);
    case ContextParallel::kAllGather:
      return add_gathers(pricing, group, block);
    case ContextParallel::kHierarchical: {
      const int inner = layout.ulysses_ranks();
      add_all_to_alls(pricing, pricing.grid.part_placement(Axis::kContext, inner, 1, cluster), block);
      return add_ring(pricing, pricing.grid.part_placement(Axis::kContext, layout.cp / inner, inner, cluster), block);
    }
  }
}

void add_amax_reductions(const PricingContext& pricing, StageCosts& costs) {
  const Job& job = pricing.job;
  const AmaxReduction ranks = job.training.stack.amax_reduction;
  const bool delayed = job.training.fp8_recipe.value_or(Fp8Recipe::kDelayed) == Fp8Recipe::kDelayed;
  if (job.training.precision != Precision::kFp8 || !delayed || ranks == AmaxReduction::kNone) return;
  // Three largest magnitudes (input, weight and output) for each of the four linears of a layer.
  constexpr double kMagnitudes = 12.0;
  const Bytes bytes(kFp32Bytes * kMagnitudes * std::max(1, costs.layers));
  const bool of_tensor = ranks == AmaxReduction::kTensor;
  const GroupPlacement group =
      of_tensor ? pricing.grid.microbatch_placement(job.cluster) : pricing.grid.stage_placement(job.cluster);
  const Traffic pass = pricing.collective(CollectiveKind::kAllReduce, bytes, group, 1);
  const Axis axis = of_tensor ? Axis::kTensor : Axis::kData;
  costs.forward.comm[axis] += pass.time;
  costs.input_gradient.comm[axis] += pass.time;
  costs.sent[axis] += scaled(pass, 2.0);
  // Kernels before it concatenate the magnitudes; kernels after it compute and return the scales.
  constexpr int kKernels = 3;
  const Seconds around = pricing.compute.memory_bound(bytes, kKernels);
  costs.forward.compute += around;
  costs.input_gradient.compute += around;
}

GroupPlacement expert_ranks(const PricingContext& pricing) {
  const Layout& layout = pricing.job.layout;
  const Cluster& cluster = pricing.job.cluster;
  return layout.folds_experts() ? pricing.grid.folded_expert_placement(*layout.etp, layout.ep, cluster)
                                : pricing.grid.expert_placement(layout.ep, cluster);
}

GroupPlacement expert_replicas(const PricingContext& pricing) {
  const Layout& layout = pricing.job.layout;
  if (layout.folds_experts()) {
    return pricing.grid.folded_replica_placement(*layout.etp, layout.ep, pricing.job.cluster);
  }
  return pricing.grid.expert_replica_placement(pricing.job.layout.ep, pricing.job.cluster);
}

}  // namespace flopcast
