#include "tests/realrun/step_volumes.hpp"

#include <cstddef>
#include <vector>

#include "realrun/network/network.hpp"

namespace flopcast::realrun {

StagePasses passes_of(const PreparedStep& step, int stage) {
  StagePasses passes;
  for (const Chain& chain : step.program.chains) {
    if (stage < chain.first_stage || stage > chain.last_stage) continue;
    passes.microbatches = step.program.asynchronous
                              ? step.job.layout.microbatches()
                              : step.program.microbatches_of(chain) / step.program.slices_per_microbatch;
  }
  const std::vector<int>& in_a_row = step.stages.passes_in_a_row;
  passes.rows = passes.microbatches / (in_a_row.empty() ? 1 : in_a_row[static_cast<std::size_t>(stage)]);
  return passes;
}

double updates_of(const PreparedStep& step) {
  return step.program.asynchronous ? step.job.layout.microbatches() / static_cast<double>(*step.request.accumulation)
                                   : 1.0;
}

double predicted_point_to_point(const PreparedStep& step, int pipeline_rank) {
  double bytes = 0;
  for (int stage = 0; stage + 1 < step.stages.stages(); ++stage) {
    const auto index = static_cast<std::size_t>(stage);
    const double messages = passes_of(step, stage).microbatches * step.program.slices_per_microbatch;
    const double sent = messages * step.costs.boundaries[index].bytes.value();
    if (step.program.rank_of_stage[index] == pipeline_rank) bytes += sent;      // activations
    if (step.program.rank_of_stage[index + 1] == pipeline_rank) bytes += sent;  // gradients
  }
  return bytes;
}

double partial_bytes(const PreparedStep& step, const RankResult& rank) {
  double elements = 0;
  for (const TrainedParameter& part : rank.weights) {
    if (part.parameter.partial && !part.parameter.frozen) elements += static_cast<double>(part.parameter.shard.count());
  }
  const double tp = step.job.layout.tp;
  double times = updates_of(step);
  if (step.job.layout.gradient_shards() > 1) times = passes_of(step, 0).rows;
  return elements * kFloatBytes * 2.0 * (tp - 1) / tp * times;
}

GridVectors vectors_on_grid(const PreparedStep& step, const RankResult& rank) {
  const Layout& layout = step.job.layout;
  const TensorGrid grid = tensor_grid(layout.tensor_parallel, layout.tp, layout.tensor_depth);
  const bool cubic = layout.tensor_parallel == TensorParallel::k3d;
  const double q = grid.q;
  const double depth = cubic ? grid.q : grid.depth;
  const double tp = layout.tp;
  GridVectors vectors;
  for (const TrainedParameter& part : rank.weights) {
    const Parameter& parameter = part.parameter;
    if (parameter.multiplies || parameter.name == tied_parameter()) continue;
    const auto count = static_cast<double>(parameter.shard.count());
    const bool of_all = parameter.shard.count() == parameter.shard.whole_columns;
    const double shares = of_all ? 2.0 * (tp - 1) / tp : 2.0 * (q - 1) / q + 2.0 * (depth - 1) / depth;
    vectors.sent += count * shares * kFloatBytes;
    const auto whole = static_cast<double>(parameter.shard.whole_rows * parameter.shard.whole_columns);
    vectors.repeated += count - whole / grid.weight_parts;
  }
  return vectors;
}

}  // namespace flopcast::realrun
