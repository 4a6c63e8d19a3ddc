#include "sim/forecast/workspace.hpp"

#include <algorithm>
#include <cstddef>

namespace flopcast {

namespace {

Bytes gathered_input_of(const Job& job, int slices) {
  const Layout& layout = job.layout;
  if (!layout.sequence_parallel || layout.tp == 1) return Bytes(0);
  const double tokens = static_cast<double>(layout.micro_batch_size) * job.training.sequence_length /
                        (layout.cp * static_cast<double>(slices));
  return element_size(job.training.precision) * (tokens * job.model.hidden);
}

}  // namespace

Bytes Workspace::total() const {
  return std::max(block, logits) + offload + gathered_weights + placeholders + gathered_input + residuals;
}

Workspace workspace_of(const Job& job, const StageMap& stages, const StepCosts& costs, int slices, int rank) {
  Workspace workspace;
  double parameters = 0.0;
  for (int index = 0; index < stages.stages(); ++index) {
    if (stages.rank_of_stage[static_cast<std::size_t>(index)] != rank) continue;
    const StageCosts& stage = costs.stages[static_cast<std::size_t>(index)];
    workspace.block = std::max(workspace.block, (stage.recompute_buffer + stage.gradient_buffer) / slices);
    workspace.logits = std::max(workspace.logits, stage.logits_buffer / slices);
    workspace.offload = std::max(workspace.offload, stage.offload_buffer / slices);
    workspace.gathered_weights =
        std::max(workspace.gathered_weights, stage.gathered_weights + stage.gathered_gradients);
    workspace.placeholders = std::max(workspace.placeholders, stage.placeholders);
    parameters += stage.parameters;
  }
  workspace.gathered_input = gathered_input_of(job, slices);
  const Compression::Kind kind = job.layout.compression.kind;
  if (kind == Compression::Kind::kTopK || kind == Compression::Kind::kPowerSgd) {
    workspace.residuals = Bytes(job.training.stack.gradient_bytes * parameters);
  }
  return workspace;
}

}  // namespace flopcast
