#include "sim/forecast/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "base/text/by_member.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

namespace {

Bytes gathered_input_of(const Job& job, int slices) {
  const Layout& layout = job.layout;
  if (!layout.sequence_parallel || layout.tp == 1) return Bytes(0);
  const double tokens = static_cast<double>(sequences_of(job.training, layout.micro_batch_size)) *
                        job.training.sequence_length / (layout.cp * static_cast<double>(slices));
  return element_size(job.training.precision) * (tokens * job.model.hidden);
}

// Keys and values of other context-parallel ranks that a layer's attention holds. All-gather: those of the whole
// sequence, and as many gradients in the backward pass. Ring of R: in the forward pass each arriving block keeps its
// own memory until the pass ends (R - 1 blocks); in the backward pass two blocks hold keys and values and two hold
// their gradients, one of which is the rank's own (NVIDIA TransformerEngine 1.x and 2.x, attention/context_parallel.py,
// AttnFuncWithCPAndKVP2P). Exchanged tensors of Ulysses are kept as activations.
Bytes context_keys_of(const Job& job) {
  const Layout& layout = job.layout;
  const double ring = layout.cp / static_cast<double>(layout.ulysses_ranks());
  if (ring == 1.0) return Bytes(0);
  const double tokens = static_cast<double>(sequences_of(job.training, layout.micro_batch_size)) *
                        job.training.sequence_length / layout.cp;
  const double width = static_cast<double>(job.model.key_width() + job.model.value_width()) / layout.tp;
  constexpr double kWithGradients = 2.0;
  constexpr double kBackwardBlocks = 3.0;
  const bool gathers = layout.context_parallel == ContextParallel::kAllGather;
  const double blocks = gathers ? kWithGradients * layout.cp : std::max(ring - 1.0, kBackwardBlocks);
  return element_size(job.training.precision) * (tokens * width * blocks);
}

struct HeldParameters {
  double all = 0.0;
  double experts = 0.0;
  FrozenWeights frozen;
  MatrixUpdates matrices;
};

HeldParameters parameters_of(const StepCosts& costs, const std::vector<int>& stages) {
  HeldParameters parameters;
  for (const int stage : stages) {
    const std::size_t index = static_cast<std::size_t>(stage);
    parameters.all += costs.stages[index].parameters;
    parameters.experts += costs.stages[index].expert_parameters;
    parameters.frozen.add(costs.stages[index].frozen, 1.0);
    parameters.matrices.add(costs.stages[index].matrices, 1.0);
  }
  return parameters;
}

class ActivationParts {
 public:
  ActivationParts(const PreparedStep& step, const RankMemory& over_time) : step_(step), over_time_(over_time) {}

  void add_stage(std::size_t stage) {
    const Job& job = step_.job;
    const StageCosts& costs = step_.costs.stages[stage];
    const double slices = step_.program.slices_per_microbatch;
    const double held = static_cast<double>(over_time_.held_at_peak[stage]) / slices;
    const bool only_sum = job.profile || job.layout.recompute == Recompute::kFull || job.layout.offloads_activations();
    if (only_sum) {
      add(fmt::format("kept by stage {}", stage), costs.activation, held);
      return;
    }
    const std::vector<int>& of_stages = job.layout.stage_layers;
    const int part = step_.stages.model_stage(static_cast<int>(stage));
    const int first = std::accumulate(of_stages.begin(), of_stages.begin() + part, 0);
    const LayersByState layers = layers_by_state(job.model, job.training, first, costs.layers);
    if (costs.has_embedding) {
      add_operators(embedding_operators(job.model, job.layout, job.training), held, Recompute::kNone);
    }
    for (const LayerState state : {LayerState::kTrained, LayerState::kFrozenPassThrough}) {
      const auto add_blocks = [&](BlockKind kind, int count) {
        if (count == 0) return;
        add_operators(block_operators(job.model, job.layout, job.training, kind, state), held * count,
                      job.layout.recompute);
      };
      add_blocks(BlockKind::kDense, layers.dense[static_cast<std::size_t>(state)]);
      add_blocks(BlockKind::kExperts, layers.with_experts[static_cast<std::size_t>(state)]);
    }
    if (const int modules = job.model.mtp_layers; costs.has_head && modules > 0) {
      const BlockKind kind = job.model.experts ? BlockKind::kExperts : BlockKind::kDense;
      add_operators(block_operators(job.model, job.layout, job.training, kind), held * modules, job.layout.recompute);
      add_operators(mtp_operators(job.model, job.layout, job.training), held * modules, Recompute::kNone);
    }
    if (costs.has_head) {
      add_operators(head_operators(job.model, job.layout, job.training), held, Recompute::kNone);
    }
  }

  const std::vector<MemoryPart>& parts() const { return parts_; }

 private:
  void add_operators(const std::vector<Operator>& operators, double count, Recompute recompute) {
    for (const Operator& op : operators) {
      add(std::string(op.name), op.saved + (recompute == Recompute::kNone ? op.saved_core : Bytes(0)), count);
    }
  }

  void add(const std::string& name, Bytes each, double count) {
    if (each.value() <= 0.0 || count <= 0.0) return;
    const auto known = std::find_if(parts_.begin(), parts_.end(), [&](const MemoryPart& part) {
      return part.name == name && part.each.value() == each.value();
    });
    if (known != parts_.end()) {
      known->count += count;
    } else {
      parts_.push_back({memory_term(&RankMemoryResult::activations_gib).name, name, each, count});
    }
  }

  const PreparedStep& step_;
  const RankMemory& over_time_;
  std::vector<MemoryPart> parts_;
};

}  // namespace

Bytes Workspace::total() const {
  return std::max(block, logits) + offload + gathered_weights + dequantised + placeholders + gathered_input +
         overlapped_layer + residuals;
}

Workspace workspace_of(const Job& job, const StepCosts& costs, const std::vector<int>& stages, int slices) {
  Workspace workspace;
  double parameters = 0.0;
  const Bytes context_keys = context_keys_of(job);
  const bool by_layers = job.layout.schedule.rfind("dualpipe", 0) != 0;  // dualpipe's own pairs hold both halves whole
  for (const int index : stages) {
    const StageCosts& stage = costs.stages[static_cast<std::size_t>(index)];
    const Bytes in_pass = stage.layers > 0 ? std::max(stage.gradient_buffer, context_keys) : stage.gradient_buffer;
    workspace.block = std::max(workspace.block, (stage.recompute_buffer + in_pass) / slices);
    workspace.logits = std::max(workspace.logits, stage.logits_buffer / slices);
    workspace.offload = std::max(workspace.offload, stage.offload_buffer / slices);
    workspace.gathered_weights =
        std::max(workspace.gathered_weights, stage.gathered_weights + stage.gathered_gradients);
    workspace.dequantised = std::max(workspace.dequantised, stage.dequantised_weight);
    workspace.placeholders = std::max(workspace.placeholders, stage.placeholders);
    parameters += stage.parameters - stage.frozen.parameters;
    if (by_layers && stage.pair_saved > Seconds(0)) {
      workspace.overlapped_layer = std::max(workspace.overlapped_layer, stage.activation / (slices * stage.layers));
    }
  }
  workspace.gathered_input = gathered_input_of(job, slices);
  const Compression::Kind kind = job.layout.compression.kind;
  if (kind == Compression::Kind::kTopK || kind == Compression::Kind::kPowerSgd) {
    workspace.residuals = Bytes(job.training.stack.gradient_bytes * parameters);
  }
  return workspace;
}

StaticMemory standing_memory(const Job& job, const StepCosts& costs, const std::vector<int>& stages, int slices,
                             int versions) {
  const HeldParameters parameters = parameters_of(costs, stages);
  StaticMemory standing;
  standing.states = model_states(job.layout, job.training, parameters.all, parameters.experts, parameters.frozen,
                                 &parameters.matrices);
  standing.versions = standing.states.weights * static_cast<double>(versions - 1);
  standing.workspace = workspace_of(job, costs, stages, slices).total();
  return standing;
}

namespace {

// Largest logits kept by one of a rank's stages.
Bytes largest_logits(const StepCosts& costs, const std::vector<int>& stages) {
  Bytes largest;
  for (const int stage : stages)
    largest = std::max(largest, costs.stages[static_cast<std::size_t>(stage)].saved_logits);
  return largest;
}

// Bytes at the fullest moment, on top of `base`.
double peak_bytes(double base, const StepCosts& costs, const RankActivations& held, int slices) {
  double peak = base;
  for (const HeldCounts& moment : held.moments) {
    double bytes = base;
    for (std::size_t index = 0; index < held.stages.size(); ++index) {
      const StageCosts& stage = costs.stages[static_cast<std::size_t>(held.stages[index])];
      bytes += static_cast<double>(moment[index]) * (stage.activation.value() / slices);
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

RankMemoryResult sum_of(const Job& job, const StepCosts& costs, const StaticMemory& standing,
                        const RankActivations& held, Bytes logits, int slices) {
  const double base = standing.total().value();
  RankMemoryResult memory;
  memory.weights_gib = gibibytes(standing.states.weights);
  memory.gradients_gib = gibibytes(standing.states.gradients);
  memory.optimizer_gib = gibibytes(standing.states.optimizer);
  memory.activations_gib = gibibytes(Bytes(peak_bytes(base, costs, held, slices) - base));
  memory.weight_versions_gib = gibibytes(standing.versions);
  memory.workspace_gib = gibibytes(standing.workspace);
  memory.total_gib = memory.weights_gib + memory.gradients_gib + memory.optimizer_gib + memory.activations_gib +
                     memory.weight_versions_gib + memory.workspace_gib;
  const Stack& stack = job.training.stack;
  // Blocks of saved logits have one large size, so the allocator reuses them whole.
  const double held_logits_gib = gibibytes(logits) * held.in_flight() / slices;
  memory.reserved_gib =
      memory.total_gib + stack.allocator_slack * std::max(0.0, memory.activations_gib - held_logits_gib);
  memory.shown_gib = memory.reserved_gib + stack.memory_overhead_gib;
  memory.peak_in_flight = (held.in_flight() + slices - 1) / slices;
  return memory;
}

int weight_versions(const PreparedStep& step, int rank) {
  return step.program.asynchronous ? step.schedule->weights.versions(step.request, rank) : 1;
}

}  // namespace

RankSum rank_memory(const Job& job, const StepCosts& costs, const RankActivations& held, int slices, int rank,
                    int versions) {
  StaticMemory standing = standing_memory(job, costs, held.stages, slices, versions);
  const Bytes logits = largest_logits(costs, held.stages);
  const Bytes capacity = memory_capacity(job, rank);
  RankSum sum{sum_of(job, costs, standing, held, logits, slices), standing.total(), Bytes(0)};
  if (job.training.paged_optimizer) {
    const Bytes beyond = Bytes(sum.memory.shown_gib * kGibibyte) - capacity;
    sum.paged = std::clamp(beyond, Bytes(0), standing.states.optimizer);
  }
  if (sum.paged > Bytes(0)) {
    standing.states.optimizer -= sum.paged;
    sum.standing = standing.total();
    sum.memory = sum_of(job, costs, standing, held, logits, slices);
  }
  sum.memory.capacity_gib = gibibytes(capacity);
  return sum;
}

double least_rank_bytes(const Job& job, const StepCosts& costs, const RankActivations& held, int slices, int rank) {
  const StaticMemory standing = standing_memory(job, costs, held.stages, slices, 1);
  const Stack& stack = job.training.stack;
  const double logits = largest_logits(costs, held.stages).value() / slices;
  const double base = standing.total().value();
  const double activations = peak_bytes(base, costs, held, slices) - base;
  // If a further activation of a stage takes less than the slack that it removes along with the logits, a rank that
  // holds more may need less; then the slack is left out.
  bool grows = true;
  for (const int stage : held.stages) {
    const double each = costs.stages[static_cast<std::size_t>(stage)].activation.value() / slices;
    grows = grows && each * (1.0 + stack.allocator_slack) >= stack.allocator_slack * logits;
  }
  const double slack = grows ? stack.allocator_slack * std::max(0.0, activations - logits * held.in_flight()) : 0.0;
  double bytes = base + activations + slack + stack.memory_overhead_gib * kGibibyte;
  if (job.training.paged_optimizer) {
    bytes -= std::clamp(bytes - memory_capacity(job, rank).value(), 0.0, standing.states.optimizer.value());
  }
  return bytes;
}

MemoryResult step_memory(const PreparedStep& step) {
  MemoryResult result;
  result.capacity_gib = gibibytes(memory_capacity(step.job, 0));
  for (int rank = 0; rank < step.program.rank_count(); ++rank) {
    const RankMemoryResult memory = rank_memory(step.job, step.costs, step.held[static_cast<std::size_t>(rank)],
                                                step.program.slices_per_microbatch, rank, weight_versions(step, rank))
                                        .memory;
    result.peak_gib = std::max(result.peak_gib, memory.total_gib);
    result.reserved_gib = std::max(result.reserved_gib, memory.reserved_gib);
    result.shown_gib = std::max(result.shown_gib, memory.shown_gib);
    result.capacity_gib = std::min(result.capacity_gib, memory.capacity_gib);
    result.fits = result.fits && memory.shown_gib <= memory.capacity_gib;
    result.per_pipeline_rank.push_back(memory);
  }
  return result;
}

std::vector<RankMemory> memory_over_time(const PreparedStep& step, const Timeline& timeline) {
  const int slices = step.program.slices_per_microbatch;
  std::vector<double> held_bytes;
  for (const StageCosts& stage : step.costs.stages) held_bytes.push_back(stage.activation.value() / slices);
  std::vector<RankMemory> memory;
  for (int rank = 0; rank < step.program.rank_count(); ++rank) {
    const RankSum sum = rank_memory(step.job, step.costs, step.held[static_cast<std::size_t>(rank)], slices, rank,
                                    weight_versions(step, rank));
    memory.push_back(memory_over_time(timeline, rank, sum.standing.value(), held_bytes));
  }
  return memory;
}

std::vector<MemoryPart> workspace_parts(const PreparedStep& step, int rank) {
  const Workspace workspace =
      workspace_of(step.job, step.costs, step.stages.stages_of(rank), step.program.slices_per_microbatch);
  const bool full = step.job.layout.recompute == Recompute::kFull;
  const std::string group = memory_term(&RankMemoryResult::workspace_gib).name;
  MemoryPart of_pass{group, "gradients of the logits", workspace.logits};
  if (workspace.block >= workspace.logits) {
    of_pass.each = workspace.block;
    of_pass.name = full ? "a block's activations and gradients" : "gradients of a block's activations";
  }
  std::vector<MemoryPart> parts = {of_pass,
                                   {group, "activations in transit to or from the host", workspace.offload},
                                   {group, "gathered weights and gradients", workspace.gathered_weights},
                                   {group, "a weight in the training format", workspace.dequantised},
                                   {group, "placeholders of weight gradients", workspace.placeholders},
                                   {group, "gathered input of a linear", workspace.gathered_input},
                                   {group, "a layer of the overlapped pass", workspace.overlapped_layer},
                                   {group, "gradients withheld by compression", workspace.residuals}};
  std::erase_if(parts, [](const MemoryPart& part) { return part.each <= Bytes(0); });
  return parts;
}

int fullest_rank(const MemoryResult& memory) {
  const auto& ranks = memory.per_pipeline_rank;
  return static_cast<int>(std::max_element(ranks.begin(), ranks.end(), by(&RankMemoryResult::total_gib)) -
                          ranks.begin());
}

std::vector<MemoryPart> memory_parts(const PreparedStep& step, int rank, const RankMemoryResult& memory,
                                     const RankMemory& over_time) {
  std::vector<MemoryPart> parts;
  const auto add = [&](double RankMemoryResult::*gib, const char* name) {
    if (memory.*gib > 0.0) parts.push_back({memory_term(gib).name, name, Bytes(memory.*gib * kGibibyte)});
  };
  add(&RankMemoryResult::weights_gib, "of all linears, norms and tables");
  add(&RankMemoryResult::weight_versions_gib, "weights of microbatches in flight");
  add(&RankMemoryResult::gradients_gib, "summed over microbatches");
  add(&RankMemoryResult::optimizer_gib, "fp32 weights and moments");
  ActivationParts activations(step, over_time);
  for (int stage = 0; stage < step.stages.stages(); ++stage) {
    if (step.stages.rank_of_stage[static_cast<std::size_t>(stage)] == rank) {
      activations.add_stage(static_cast<std::size_t>(stage));
    }
  }
  parts.insert(parts.end(), activations.parts().begin(), activations.parts().end());
  const std::vector<MemoryPart> workspace = workspace_parts(step, rank);
  parts.insert(parts.end(), workspace.begin(), workspace.end());
  return parts;
}

std::vector<MemoryPart> fullest_rank_parts(const PreparedStep& step, const MemoryResult& memory,
                                           const std::vector<RankMemory>& over_time) {
  const int rank = fullest_rank(memory);
  const std::size_t index = static_cast<std::size_t>(rank);
  std::vector<MemoryPart> parts = memory_parts(step, rank, memory.per_pipeline_rank[index], over_time[index]);
  std::stable_sort(parts.begin(), parts.end(), descending_by(&MemoryPart::total));
  return parts;
}

namespace {

// Bytes of the hidden states between two blocks.
double flow_bytes(const Job& job) {
  const Layout& layout = job.layout;
  const double rows = static_cast<double>(layout.micro_batch_size) * job.training.sequence_length /
                      (layout.sequence_parallel || layout.tensor_parallel != TensorParallel::k1d ? layout.tp : 1);
  return element_size(job.training.precision).value() * rows * job.model.hidden;
}

double kept_for_weight_gradient(const std::vector<Operator>& operators, const Job& job) {
  const double element = element_size(job.training.precision).value();
  double bytes = 0.0;
  for (const Operator& op : operators) {
    const bool weighs = op.parameters > op.frozen_parameters;
    if (op.frozen) continue;
    if (op.kind == OperatorKind::kLinear) {
      bytes += op.saved.value() + element * static_cast<double>(op.shape.m) * static_cast<double>(op.shape.n);
    } else if (weighs && op.saved.value() > 0.0) {
      bytes += 2.0 * op.saved.value();
    } else if (weighs && job.layout.sequence_parallel && job.layout.tp > 1) {
      bytes += flow_bytes(job);  // of a bias after a linear, which receives the same gradient gathered
    }
  }
  return bytes;
}

double peak_of(const std::vector<Action>& actions, const std::vector<HeldBytes>& held) {
  double bytes = 0.0;
  double peak = 0.0;
  for (const Action& action : actions) {
    const HeldBytes& stage = held.at(action.stage);
    switch (action.kind) {
      case ActionKind::kForward:
        bytes += stage.from_forward;
        break;
      case ActionKind::kBackward:
        bytes -= stage.from_forward;
        break;
      case ActionKind::kInputGradient:
        bytes += stage.after_input_gradient - stage.from_forward;
        break;
      case ActionKind::kWeightGradient:
        bytes -= stage.after_input_gradient;
        break;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

}  // namespace

Job job_as_run(Job job, bool fused_attention) {
  job.training.precision = Precision::kFp32;
  job.model.dropout = false;
  job.training.flash_attention = fused_attention;
  if (job.training.finetune) job.training.finetune->base = BaseFormat::kBf16;  // same format as all weights
  Stack& stack = job.training.stack;
  stack.for_realrun = true;
  stack.vocab_divisor = 1;
  stack.gradient_bytes = 4.0;
  stack.reduce_bytes = 0.0;
  stack.reduces_whole_gradients = false;
  stack.scatter_gather_transfers = false;
  return job;
}

std::vector<HeldBytes> held_in_run(const PreparedStep& step) {
  const Job& job = step.job;
  const double block =
      kept_for_weight_gradient(block_operators(job.model, job.layout, job.training, BlockKind::kDense), job);
  const bool trains_tables = embedding_state(job.training) == LayerState::kTrained;
  const double head =
      trains_tables ? kept_for_weight_gradient(head_operators(job.model, job.layout, job.training), job) : 0.0;
  const double embedding = trains_tables ? flow_bytes(job) : 0.0;
  const double slices = step.program.slices_per_microbatch;
  std::vector<HeldBytes> held;
  int first = 0;  // first layer of the stage, within this copy of the model
  for (const StageCosts& stage : step.costs.stages) {
    const LayersByState layers = layers_by_state(job.model, job.training, first, stage.layers);
    first = (first + stage.layers) % job.model.layers;
    const auto trained = static_cast<std::size_t>(LayerState::kTrained);
    const double after = block * (layers.dense[trained] + layers.with_experts[trained]) +
                         (stage.has_head ? head : 0.0) + (stage.has_embedding ? embedding : 0.0);
    held.push_back({stage.activation.value() / slices, after / slices});
  }
  return held;
}

std::vector<HeldBytes> held_as_priced(const PreparedStep& step) {
  std::vector<HeldBytes> held;
  for (const StageCosts& stage : step.costs.stages) {
    const double bytes = stage.activation.value() / step.program.slices_per_microbatch;
    held.push_back({bytes, bytes});
  }
  return held;
}

MemoryResult memory_as_run(const Forecast& job) {
  MemoryResult memory = job.result.memory;
  memory.peak_gib = 0.0;
  const std::vector<HeldBytes> held = held_in_run(job.step);
  for (std::size_t rank = 0; rank < memory.per_pipeline_rank.size(); ++rank) {
    RankMemoryResult& result = memory.per_pipeline_rank[rank];
    const double activations = gibibytes(Bytes(peak_of(job.step.program.ranks[rank], held)));
    result.total_gib += activations - result.activations_gib;
    result.activations_gib = activations;
    memory.peak_gib = std::max(memory.peak_gib, result.total_gib);
  }
  memory.fits = memory.peak_gib <= memory.capacity_gib;
  return memory;
}

}  // namespace flopcast
