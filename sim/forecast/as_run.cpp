#include "sim/forecast/as_run.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

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
      bytes += flow_bytes(job);  // of a bias behind a linear, which gets the same gradient gathered
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
  if (job.training.finetune) job.training.finetune->base = BaseFormat::kBf16;  // that is, as all weights are
  Stack& stack = job.training.stack;
  stack.of_own_run = true;
  stack.vocab_divisor = 1;
  stack.gradient_bytes = 4.0;
  stack.reduce_bytes = 0.0;
  stack.reduces_whole_gradients = false;
  stack.scatter_gather_transfers = false;
  return job;
}

std::vector<HeldBytes> held_as_run(const PreparedStep& step) {
  const Job& job = step.job;
  const double block =
      kept_for_weight_gradient(block_operators(job.model, job.layout, job.training, BlockKind::kDense), job);
  const bool trains_tables = embedding_state(job.training) == LayerState::kTrained;
  const double head =
      trains_tables ? kept_for_weight_gradient(head_operators(job.model, job.layout, job.training), job) : 0.0;
  const double embedding = trains_tables ? flow_bytes(job) : 0.0;
  const double slices = step.program.slices_per_microbatch;
  std::vector<HeldBytes> held;
  int first = 0;  // layer of the stage, of this copy of the model
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
  const std::vector<HeldBytes> held = held_as_run(job.step);
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
