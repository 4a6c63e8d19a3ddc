#include "model/cost/stage_costs.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/cost/axis_costs.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/cost/expert_costs.hpp"
#include "model/cost/model_parts.hpp"
#include "model/cost/pricing.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

std::vector<int> StageMap::stages_of(int rank) const {
  std::vector<int> own;
  for (int stage = 0; stage < stages(); ++stage) {
    if (rank_of_stage[static_cast<std::size_t>(stage)] == rank) own.push_back(stage);
  }
  return own;
}

void CostsByStage::reserve(std::size_t stages) {
  constexpr std::size_t kUsuallyUnlike = 3;  // first, inner and last stage
  entry_of_.reserve(stages);
  entries_.reserve(std::min(stages, kUsuallyUnlike));
}

void CostsByStage::push_back(StageCosts costs) {
  entry_of_.push_back(entries_.size());
  entries_.push_back(std::move(costs));
}

void CostsByStage::push_shared(std::size_t stage) {
  entry_of_.push_back(entry_of_.at(stage));
}

StageCosts& CostsByStage::own(std::size_t stage) {
  std::size_t& entry = entry_of_.at(stage);
  if (std::count(entry_of_.begin(), entry_of_.end(), entry) > 1) {
    entries_.push_back(StageCosts(entries_[entry]));
    entry = entries_.size() - 1;
  }
  return entries_[entry];
}

namespace {

// While a block is recomputed and differentiated, its activations, their gradients and the kernels' temporaries are
// alive together: three times the activations, fitted to the memory of the published BLOOM runs.
constexpr double kRecomputeWorkingSet = 3.0;

using Block = PricedBlock;

class StepPricer {
 public:
  StepPricer(const Job& job, const StageMap& map, SharedPrices* shared, PricedParts asked = PricedParts::kAll)
      : job_(job), map_(map), asked_(asked), pricing_(job, map), parts_(price_parts(pricing_, asked, shared)) {}

  StepCosts price(const std::vector<int>& stage_layers);
  CostsByStage price_passes(const std::vector<int>& stage_layers);
  StageCosts price_whole_model();

 private:
  // A stage's layers, and those of them that full recomputation repeats.
  struct LayerCounts {
    LayersByState all;
    LayersByState redone;

    bool operator==(const LayerCounts&) const = default;
  };
  template <class Visit>
  void each_block(const LayerCounts& layers, const Visit& visit) const;
  LayerCounts layer_counts(int first_layer, int layers) const;
  PassCost redone(const Block& block) const;
  bool repeats_exchange(const Block& block) const;
  void add_blocks(const Block& block, int layers, int redone_whole, StageCosts& costs) const;
  double low_rank_of_head() const;
  void add_recomputed_blocks(const Block& block, int layers, StageCosts& costs) const;
  void add_kept_blocks(const Block& block, int layers, StageCosts& costs) const;
  StageCosts stage(int index, int first_layer, int layers) const;
  const Block& block_of_mtp() const;
  int redone_of_mtp() const;
  void add_mtp(bool has_embedding, StageCosts& costs) const;
  // Everything that determines the costs of an inner stage; empty for stages at either end of the model.
  struct Alike {
    LayerCounts layers;
    int passes_in_a_row = 1;

    bool operator==(const Alike&) const = default;
  };
  std::optional<Alike> inner_stage(int index, int first_layer, int layers) const;
  CostsByStage price_stages(const std::vector<int>& stage_layers) const;
  std::vector<UnitRun> runs_of(int index, const LayerCounts& layers) const;
  bool rank_has_table(int index) const;
  void share_tables_within_ranks(StepCosts& costs) const;
  void add_gradient_free_passes(const LayerCounts& layers, StageCosts& costs) const;
  void add_host_of_slot(const LayerCounts& layers, StageCosts& costs) const;
  BoundaryCosts boundary(int stage);
  BoundaryCosts transfer(bool crosses_nodes) const;

  const Job& job_;
  const StageMap& map_;
  PricedParts asked_;
  PricingContext pricing_;
  ModelParts parts_;
  std::optional<BoundaryCosts> transfers_[2];  // inside a node, between nodes
};

namespace {

// True if each tensor-parallel rank holds only its part of the hidden states between blocks.
bool tokens_are_split(const Layout& layout) {
  return layout.sequence_parallel || layout.tensor_parallel != TensorParallel::k1d;
}

void add_pass(PassCost& sum, const PassCost& pass, double times) {
  sum.compute += pass.compute * times;
  for (const Axis axis : kAxes) sum.comm[axis] += pass.comm[axis] * times;
}

void add_section(const Section& section, double times, StageCosts& costs) {
  add_pass(costs.forward, section.forward, times);
  add_pass(costs.input_gradient, section.input_gradient, times);
  add_pass(costs.weight_gradient, section.weight_gradient, times);
  for (const Axis axis : kAxes) costs.sent[axis] += scaled(section.sent[axis], times);
  costs.model_flops += section.flops * times;
  costs.parameters += section.parameters * times;
  costs.expert_parameters += section.expert_parameters * times;
  costs.low_rank_elements += section.low_rank_elements * times;
  costs.frozen.add(section.frozen, times);
  costs.matrices.add(section.matrices, times);
  costs.dequantised_weight = std::max(costs.dequantised_weight, section.dequantised);
}

// Charges the slowdown caused by the hidden part of the replicas' traffic during the passes, a third of it to the
// forward pass. Network latency slows nothing down.
void add_overlap_slowdown(double slowdown, StageCosts& costs) {
  const Seconds exposed = costs.forward.comm.dp + costs.input_gradient.comm.dp;
  const Traffic& sent = costs.sent.dp;
  if (sent.time <= Seconds(0)) return;
  const Seconds hidden = std::max(Seconds(0), sent.time - exposed) * (sent.on_links / sent.time);
  constexpr double kForwardShare = 1.0 / 3.0;
  costs.forward.compute += hidden * (slowdown * kForwardShare);
  costs.input_gradient.compute += hidden * (slowdown * (1.0 - kForwardShare));
}

// The head shares the embedding's table.
void drop_table(double table, double low_rank_elements, const Training& training, StageCosts& costs) {
  costs.parameters -= table;
  costs.low_rank_elements -= low_rank_elements;
  if (head_state(training) == LayerState::kTrained) return;
  costs.frozen.parameters -= table;
  costs.frozen.weights -= element_size(training.precision) * table;
}

}  // namespace

StepPricer::LayerCounts StepPricer::layer_counts(int first_layer, int layers) const {
  LayerCounts counts;
  counts.all = layers_by_state(job_.model, job_.training, first_layer, layers);
  if (job_.layout.recompute != Recompute::kFull) return counts;
  const std::optional<int> every = job_.layout.recompute_every;
  if (every) {
    for (int layer = *every - 1; layer < layers; layer += *every) {
      const LayersByState one = layers_by_state(job_.model, job_.training, first_layer + layer, 1);
      for (std::size_t state = 0; state < kLayerStates; ++state) {
        counts.redone.dense[state] += one.dense[state];
        counts.redone.with_experts[state] += one.with_experts[state];
      }
    }
  } else {
    const int redone = job_.layout.recomputed(layers);
    counts.redone = layers_by_state(job_.model, job_.training, first_layer, redone);
  }
  counts.redone.dense[static_cast<std::size_t>(LayerState::kFrozenNoGradient)] = 0;
  counts.redone.with_experts[static_cast<std::size_t>(LayerState::kFrozenNoGradient)] = 0;
  return counts;
}

// In the order of the layers: frozen layers that need no gradients are below the trained ones; other frozen layers come
// last.
template <class Visit>
void StepPricer::each_block(const LayerCounts& layers, const Visit& visit) const {
  for (const LayerState state : {LayerState::kFrozenNoGradient, LayerState::kTrained, LayerState::kFrozenPassThrough}) {
    const std::size_t index = static_cast<std::size_t>(state);
    visit(parts_.sections->dense[index], layers.all.dense[index], layers.redone.dense[index]);
    visit(parts_.experts->blocks[index], layers.all.with_experts[index], layers.redone.with_experts[index]);
  }
}

// The part of a block that selective recomputation repeats, with the collectives of modules that are repeated as a
// whole.
PassCost StepPricer::redone(const Block& block) const {
  PassCost again = block.cost.core;
  again.comm.tp += block.cost.forward.comm.tp * share_redone_selectively(job_, block.kind);
  if (repeats_exchange(block)) again.comm.ep += block.cost.forward.comm.ep;
  return again;
}

bool StepPricer::repeats_exchange(const Block& block) const {
  const std::optional<RecomputeModules>& modules = job_.layout.recompute_modules;
  return block.kind == BlockKind::kExperts && modules && (*modules & bit_of(RecomputeModule::kMoe)).any();
}

void StepPricer::add_blocks(const Block& block, int layers, int redone_whole, StageCosts& costs) const {
  if (layers == 0) return;
  add_section(block.cost, layers, costs);
  costs.placeholders = std::max(costs.placeholders, placeholder_gradients(block.operators, job_.training));
  costs.tp_hidden += block.cost.tp_hidden * layers;
  if (block.kind == BlockKind::kExperts) {
    costs.expert_layers += layers;
    costs.expert_layer = block.cost.expert_layer;
    costs.pair_saved = block.cost.pair_saved.of(costs.expert_layers);
    costs.pair_hidden = block.cost.pair_hidden.of(costs.expert_layers);
  }
  if (redone_whole > 0) add_recomputed_blocks(block, redone_whole, costs);
  if (layers > redone_whole) add_kept_blocks(block, layers - redone_whole, costs);
}

void StepPricer::add_recomputed_blocks(const Block& block, int layers, StageCosts& costs) const {
  const Layout& layout = job_.layout;
  const bool cut = tokens_are_split(layout) || layout.partition_checkpoints;
  add_pass(costs.recompute, block.cost.forward, layers);
  costs.sent.tp += scaled(recomputed_collectives(pricing_, block.kind, block.cost), layers);
  if (job_.training.finetune) costs.sent.tp += scaled(adapter_exchange(pricing_, block.operators, {}), layers);
  if (block.kind == BlockKind::kExperts) {
    costs.sent.tp.sent_per_rank += gathers_of_routed_tokens(pricing_).sent_per_rank * layers;
  }
  costs.sent.ep += scaled(block.cost.sent.ep, layers / 2.0);
  costs.sent.cp += scaled(block.cost.context_forward, layers);
  if (layout.partition_checkpoints) {
    const Traffic gather =
        pricing_.collective(CollectiveKind::kAllGather, pricing_.hidden_bytes(), pricing_.tp_group, layers);
    costs.recompute.comm.tp += gather.time;
    costs.sent.tp += gather;
  }
  costs.recompute_flops += block.cost.forward_flops * layers;
  costs.activation += pricing_.hidden_bytes() / (cut ? layout.tp : 1.0) * layers;
  costs.recompute_buffer = std::max(costs.recompute_buffer, saved_activation(block.operators) * kRecomputeWorkingSet);
}

void StepPricer::add_kept_blocks(const Block& block, int layers, StageCosts& costs) const {
  const Layout& layout = job_.layout;
  if (block.state == LayerState::kFrozenNoGradient) return;
  costs.gradient_buffer = std::max(costs.gradient_buffer, gradient_buffer(block.operators));
  if (layout.recompute != Recompute::kSelective) {
    costs.activation += saved_activation(block.operators) * layers;
    return;
  }
  costs.activation += saved_selectively(block.operators, layout, job_.training.stack) * layers;
  add_pass(costs.recompute, redone(block), layers);
  costs.recompute_flops += block.cost.core_flops * layers;
  const double share = share_redone_selectively(job_, block.kind);
  if (share > 0.0) costs.sent.tp += scaled(recomputed_collectives(pricing_, block.kind, block.cost), layers * share);
  if (job_.training.finetune && layout.recompute_modules) {
    costs.sent.tp += scaled(adapter_exchange(pricing_, block.operators, layout.recompute_modules), layers);
  }
  if (repeats_exchange(block)) costs.sent.ep += scaled(block.cost.sent.ep, layers / 2.0);
  costs.recompute_buffer = std::max(costs.recompute_buffer, rebuilt_selectively(block.operators, layout));
}

std::vector<UnitRun> StepPricer::runs_of(int index, const LayerCounts& layers) const {
  std::vector<UnitRun> runs;
  const auto add = [&](const Block& block, int count, int redone_whole) {
    const bool selective =
        job_.layout.recompute == Recompute::kSelective && block.state != LayerState::kFrozenNoGradient;
    const Seconds again = selective ? redone(block).total() : Seconds(0);
    if (redone_whole > 0) runs.push_back({&block.cost, redone_whole, block.cost.forward.total()});
    if (count > redone_whole) runs.push_back({&block.cost, count - redone_whole, again});
  };
  if (map_.model_stage(index) == 0) runs.push_back({&parts_.sections->embedding, 1, Seconds(0)});
  each_block(layers, add);
  if (map_.model_stage(index) + 1 == map_.model_stages) {
    if (const int modules = job_.model.mtp_layers; modules > 0) {
      add(block_of_mtp(), modules, redone_of_mtp());
      runs.push_back({&parts_.sections->mtp, modules, Seconds(0)});
    }
    runs.push_back({rank_has_table(index) ? &parts_.sections->tied_head : &parts_.sections->head, 1, Seconds(0)});
  }
  return runs;
}

// True if embeddings are tied and this stage's rank also holds a first stage.
bool StepPricer::rank_has_table(int index) const {
  const auto rank_of = [this](int stage) { return map_.rank_of_stage[static_cast<std::size_t>(stage)]; };
  bool has = false;
  for (int first = 0; first < map_.stages(); first += map_.model_stages) has = has || rank_of(first) == rank_of(index);
  return has && job_.model.tied_embeddings;
}

const Block& StepPricer::block_of_mtp() const {
  return (job_.model.experts ? parts_.experts->blocks
                             : parts_.sections->dense)[static_cast<std::size_t>(LayerState::kTrained)];
}

// MTP blocks are recomputed when all layers are, but not when only the first layers of each stage are.
int StepPricer::redone_of_mtp() const {
  const bool all = job_.layout.recompute == Recompute::kFull && !job_.layout.recompute_layers;
  return all ? job_.model.mtp_layers : 0;
}

// If the embedding is on another stage, MTP holds a second copy, whose gradients are added to the first's.
void StepPricer::add_mtp(bool has_embedding, StageCosts& costs) const {
  const int modules = job_.model.mtp_layers;
  if (modules == 0) return;
  add_blocks(block_of_mtp(), modules, redone_of_mtp(), costs);
  add_section(parts_.sections->mtp, modules, costs);
  costs.activation += saved_activation(parts_.sections->mtp_operators) * modules;
  if (has_embedding || job_.model.tied_embeddings) return;
  const double table = parts_.sections->embedding_operators.front().parameters;
  costs.parameters += table;
  costs.embedding_parameters = table;
}

// Number of elements that PowerSGD would send for the head's table.
double StepPricer::low_rank_of_head() const {
  return gradient_amount(parts_.sections->head_operators[1], job_.layout).low_rank_elements;
}

// Host time of a slot beyond the launches of its blocks: a rank's share of a microbatch (divided by its chunks), a
// transfer, recomputed regions and hooks of gathered parameters. The pass waits for the host's whole time, not for the
// blocks' alone.
void StepPricer::add_host_of_slot(const LayerCounts& layers, StageCosts& costs) const {
  const Stack& stack = job_.training.stack;
  const Layout& layout = job_.layout;
  const double slow = 1.0 / job_.cluster.host_speed;
  Seconds of_slot;
  if (stack.cuda_graphs != CudaGraphs::kFull)
    of_slot += stack.host_time_per_microbatch * (1.0 / std::max(1, map_.stages() / layout.pp));
  if (layout.pp > 1) of_slot += stack.host_time_per_hand_over;
  HostPasses blocks;
  Seconds forward_more = of_slot * 0.5;
  Seconds backward_more = of_slot * 0.5;
  const bool hooks = layout.weight_shards() > 1 && stack.host_time_per_parameter > Seconds(0);
  const double modules = layout.recompute_modules ? static_cast<double>(layout.recompute_modules->count()) : 1.0;
  each_block(layers, [&](const Block& block, int all, int redone) {
    const HostPasses& host = block.cost.host;
    blocks.forward += host.forward * all;
    blocks.backward += host.backward * all + host.forward * redone;
    blocks.forward_wait += host.forward_wait * all;
    blocks.backward_wait += host.backward_wait * all + host.forward_wait * redone;
    const bool selective = layout.recompute == Recompute::kSelective && block.state != LayerState::kFrozenNoGradient;
    const double regions = selective ? modules * all : redone;
    backward_more += stack.host_time_per_checkpoint * regions;
    if (!hooks) return;
    const auto tensors = static_cast<double>(block.cost.gradients.size());
    forward_more += stack.host_time_per_parameter * (tensors * all);
    backward_more += stack.host_time_per_parameter * (tensors * (all + redone));
  });
  const auto longer = [slow](Seconds host, Seconds more, Seconds device) {
    if (more <= Seconds(0)) return Seconds(0);
    return waiting_for_host(host + more * slow, device) - waiting_for_host(host, device);
  };
  const Seconds backward = costs.input_gradient.total() + costs.weight_gradient.total() + costs.recompute.total() -
                           costs.tp_hidden - blocks.backward_wait;
  costs.forward.compute += longer(blocks.forward, forward_more, costs.forward.total() - blocks.forward_wait);
  const Seconds added = longer(blocks.backward, backward_more, backward);
  costs.input_gradient.compute += added * 0.5;
  costs.weight_gradient.compute += added * 0.5;
}

// Preference training also passes each sequence forward without gradients: through the reference model and, with kto,
// through the trained model. These passes keep nothing; their collectives are those of the forward pass.
void StepPricer::add_gradient_free_passes(const LayerCounts& layers, StageCosts& costs) const {
  const std::optional<Preference>& preference = job_.training.preference;
  const double passes = gradient_free_passes(job_.training);
  if (passes == 0.0) return;
  const double of_reference = preference->reference_passes();
  const double of_trained = preference->passes_without_gradients();
  const Seconds gathered = costs.forward.comm.dp;
  each_block(layers, [&](const Block& block, int all, int) {
    add_pass(costs.forward, block.reference, of_reference * all);
    add_pass(costs.forward, block.cost.forward, of_trained * all);
    costs.sent.tp += scaled(recomputed_collectives(pricing_, block.kind, block.cost), passes * all);
    costs.sent.ep += scaled(block.cost.sent.ep, passes * all / 2.0);
    costs.sent.cp += scaled(block.cost.context_forward, passes * all);
    costs.model_flops += block.cost.forward_flops * (passes * all);
  });
  costs.forward.comm.dp += gathered * passes;
  for (const Section* end : {costs.has_embedding ? &parts_.sections->embedding : nullptr,
                             costs.has_head ? &parts_.sections->head : nullptr}) {
    if (end == nullptr) continue;
    add_pass(costs.forward, end->forward, passes);
    costs.model_flops += end->forward_flops * passes;
  }
  if (!costs.has_head) return;
  // The logits and their logarithms, in addition to those kept for the trained model.
  costs.logits_buffer = std::max(costs.logits_buffer, parts_.sections->head_operators[1].output * 2.0);
}

StageCosts StepPricer::stage(int index, int first_layer, int layers) const {
  const bool first = map_.model_stage(index) == 0;
  const bool last = map_.model_stage(index) + 1 == map_.model_stages;
  StageCosts costs;
  costs.layers = layers;
  costs.has_embedding = first;
  costs.has_head = last;
  const LayerCounts counts = layer_counts(first_layer, layers);
  each_block(counts, [&](const Block& block, int all, int redone) { add_blocks(block, all, redone, costs); });
  if (first) {
    add_section(parts_.sections->embedding, 1, costs);
    costs.activation += saved_activation(parts_.sections->embedding_operators);
    const bool twice = job_.model.tied_embeddings || (!last && job_.model.mtp_layers > 0);
    costs.embedding_parameters = twice ? parts_.sections->embedding_operators.front().parameters : 0.0;
  }
  if (last) {
    add_section(parts_.sections->head, 1, costs);
    costs.activation += saved_activation(parts_.sections->head_operators);
    costs.saved_logits = parts_.sections->head_operators.back().saved;
    // The loss works in place on its stored logits; only the gradient cast for the GEMMs is new.
    costs.logits_buffer = gradient_buffer(parts_.sections->head_operators) +
                          placeholder_gradients(parts_.sections->head_operators, job_.training);
    const double table = parts_.sections->head_operators[1].parameters;
    if (job_.model.tied_embeddings) {
      costs.embedding_parameters = table;
      if (first) drop_table(table, low_rank_of_head(), job_.training, costs);
    }
    add_mtp(first, costs);
  }
  if (asked_ == PricedParts::kMemory || asked_ == PricedParts::kLeastTime) return costs;
  const std::vector<UnitRun> runs = runs_of(index, counts);
  finish_stage(pricing_, index, runs, costs);
  add_host_of_slot(counts, costs);
  if (asked_ == PricedParts::kAll) fill_buckets(pricing_, runs, costs);
  add_gradient_free_passes(counts, costs);
  add_overlap_slowdown(overlap_slowdown(job_.cluster.device), costs);
  add_amax_reductions(pricing_, costs);
  costs.split_slowdown = costs.input_gradient.compute * job_.training.stack.split_backward_slowdown;
  return costs;
}

// If a rank holds a first and a last stage (V maps, one rank with chunks, the two copies of a bidirectional schedule),
// it has one tied table, and nothing is summed between first and last rank.
void StepPricer::share_tables_within_ranks(StepCosts& costs) const {
  for (int first = 0; first < map_.stages(); first += map_.model_stages) {
    for (int last = map_.model_stages - 1; last < map_.stages(); last += map_.model_stages) {
      const auto bottom = static_cast<std::size_t>(first);
      const auto top = static_cast<std::size_t>(last);
      if (first == last || map_.rank_of_stage[bottom] != map_.rank_of_stage[top]) continue;
      StageCosts& head = costs.stages.own(top);
      drop_table(head.embedding_parameters, job_.model.tied_embeddings ? low_rank_of_head() : 0.0, job_.training, head);
      head.embedding_parameters = 0.0;
      costs.stages.own(bottom).embedding_parameters = 0.0;
    }
  }
}

BoundaryCosts StepPricer::boundary(int stage) {
  const int from = map_.rank_of_stage[static_cast<std::size_t>(stage)];
  const int to = map_.rank_of_stage[static_cast<std::size_t>(stage) + 1];
  const bool between_chains = map_.model_stage(stage) + 1 == map_.model_stages;
  if (from == to || between_chains) return {};
  const bool crosses = pricing_.grid.pipeline_hop_crosses_nodes(from, to, job_.cluster);
  std::optional<BoundaryCosts>& known = transfers_[crosses ? 1 : 0];
  if (!known) known = transfer(crosses);
  return *known;
}

BoundaryCosts StepPricer::transfer(bool crosses_nodes) const {
  const Layout& layout = job_.layout;
  BoundaryCosts costs;
  const bool scattered = layout.tp > 1 && !tokens_are_split(layout) && job_.training.stack.scatter_gather_transfers;
  const double share = tokens_are_split(layout) || scattered ? layout.tp : 1.0;
  const double slices = layout.slices.value_or(1);
  costs.bytes = pricing_.hidden_bytes() / (share * slices);
  const int flows = std::min(job_.cluster.devices_per_node, pricing_.grid.stride(Axis::kPipeline));
  costs.forward = pricing_.communication.point_to_point(costs.bytes, crosses_nodes, flows);
  if (scattered)
    costs.forward += pricing_.communication.collective(CollectiveKind::kAllGather, pricing_.hidden_bytes() / slices,
                                                       pricing_.tp_group);
  // A transfer that device and host wait for does not overlap with computation.
  const Stack& stack = job_.training.stack;
  const bool beside = !stack.blocking_sends && stack.transfer_synchronization == Seconds(0);
  if (beside) costs.slowdown = costs.forward * overlap_slowdown(job_.cluster.device);
  costs.forward += job_.training.stack.transfer_synchronization;
  costs.backward = costs.forward;
  costs.forward *= 1.0 + gradient_free_passes(job_.training);
  return costs;
}

std::optional<StepPricer::Alike> StepPricer::inner_stage(int index, int first_layer, int layers) const {
  const int part = map_.model_stage(index);
  if (part == 0 || part + 1 == map_.model_stages) return std::nullopt;
  const int row = map_.passes_in_a_row.empty() ? 1 : map_.passes_in_a_row[static_cast<std::size_t>(index)];
  return Alike{layer_counts(first_layer, layers), row};
}

// Equal inner stages are priced only once.
CostsByStage StepPricer::price_stages(const std::vector<int>& stage_layers) const {
  std::vector<int> first_layer(stage_layers.size() + 1, 0);
  std::partial_sum(stage_layers.begin(), stage_layers.end(), first_layer.begin() + 1);
  CostsByStage stages;
  stages.reserve(static_cast<std::size_t>(map_.stages()));
  std::vector<std::pair<Alike, std::size_t>> priced;
  for (int index = 0; index < map_.stages(); ++index) {
    const std::size_t part = static_cast<std::size_t>(map_.model_stage(index));
    const std::optional<Alike> inner = inner_stage(index, first_layer[part], stage_layers[part]);
    const auto same = std::find_if(priced.begin(), priced.end(),
                                   [&inner](const auto& known) { return inner && known.first == *inner; });
    if (same != priced.end()) {
      stages.push_shared(same->second);
      continue;
    }
    if (inner) priced.emplace_back(*inner, stages.size());
    stages.push_back(stage(index, first_layer[part], stage_layers[part]));
  }
  return stages;
}

CostsByStage StepPricer::price_passes(const std::vector<int>& stage_layers) {
  FLOPCAST_CHECK(static_cast<int>(stage_layers.size()) == map_.model_stages);
  return price_stages(stage_layers);
}

StepCosts StepPricer::price(const std::vector<int>& stage_layers) {
  StepCosts costs;
  costs.stages = price_passes(stage_layers);
  share_tables_within_ranks(costs);
  costs.boundaries.reserve(static_cast<std::size_t>(map_.stages()));
  for (int index = 0; index + 1 < map_.stages(); ++index) costs.boundaries.push_back(boundary(index));
  costs.ranks = price_flushes(pricing_, costs);
  return costs;
}

StageCosts StepPricer::price_whole_model() {
  return stage(0, 0, job_.model.layers);
}

StageMap one_stage() {
  StageMap map;
  map.rank_of_stage = {0};
  return map;
}

}  // namespace

StepCosts price_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers, SharedPrices* shared) {
  if (job.profile) return price_profile_step(job, map, stage_layers);
  if (job.cluster.node_devices.size() > 1) return price_uneven_step(job, map, stage_layers);
  return StepPricer(job, map, shared).price(stage_layers);
}

CostsByStage price_passes(const Job& job, const StageMap& map, const std::vector<int>& stage_layers,
                          SharedPrices* shared) {
  if (job.profile || job.cluster.node_devices.size() > 1) return price_step(job, map, stage_layers, shared).stages;
  return StepPricer(job, map, shared, PricedParts::kPasses).price_passes(stage_layers);
}

StageCosts price_memory(const Job& job, SharedPrices& shared) {
  FLOPCAST_CHECK(!job.profile && !job.cluster.uneven() && !job.layout.offloads_activations());
  const StageMap map = one_stage();
  return StepPricer(job, map, &shared, PricedParts::kMemory).price_whole_model();
}

Seconds least_pass_time(const Job& job, SharedPrices& shared) {
  FLOPCAST_CHECK(!job.profile && !job.cluster.uneven() && !job.training.finetune);
  const StageMap map = one_stage();
  return StepPricer(job, map, &shared, PricedParts::kLeastTime).price_whole_model().passes();
}

Flops model_flops_per_step(const Job& job, AttentionFlops counted) {
  if (job.profile) return Flops(0);
  // The model's own work: work repeated on several tensor-parallel ranks counts once.
  const auto all_passes = [&job, counted](const std::vector<Operator>& operators) {
    Flops sum;
    for (const Operator& op : operators) {
      const Flops all = counted == AttentionFlops::kFull ? forward_flops(op) : causal_forward_flops(op, job.model);
      sum += all * (passes_of(op) + gradient_free_passes(job.training)) / op.work_copies;
    }
    return sum;
  };
  const LayersByState layers = layers_by_state(job.model, job.training, 0, job.model.layers);
  Flops total = all_passes(head_operators(job.model, job.layout, job.training));
  for (const LayerState state : {LayerState::kTrained, LayerState::kFrozenPassThrough, LayerState::kFrozenNoGradient}) {
    const auto add = [&](BlockKind kind, int count) {
      if (count == 0) return;
      total +=
          all_passes(block_operators(job.model, job.layout, job.training, kind, state)) * static_cast<double>(count);
    };
    add(BlockKind::kDense, layers.dense[static_cast<std::size_t>(state)]);
    add(BlockKind::kExperts, layers.with_experts[static_cast<std::size_t>(state)]);
  }
  if (job.model.mtp_layers > 0) {
    const BlockKind kind = job.model.experts ? BlockKind::kExperts : BlockKind::kDense;
    const Flops module = all_passes(mtp_operators(job.model, job.layout, job.training)) +
                         all_passes(block_operators(job.model, job.layout, job.training, kind));
    total += module * static_cast<double>(job.model.mtp_layers);
  }
  const double microbatches = job.layout.microbatches();
  return total * microbatches * static_cast<double>(job.layout.tp * job.layout.cp * job.layout.dp);
}

}  // namespace flopcast
