#include "sim/forecast/memory.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/data_parallel.hpp"
#include "model/cost/uneven_costs.hpp"
#include "sim/schedule/in_flight.hpp"

namespace flopcast {

namespace {

Bytes workspace_of(const PreparedStep& step, int rank) {
  Bytes largest;
  Bytes replicas;
  Bytes offload;
  for (int stage = 0; stage < step.stages.stages(); ++stage) {
    if (step.stages.rank_of_stage[static_cast<std::size_t>(stage)] != rank) continue;
    const StageCosts& costs = step.costs.stages[static_cast<std::size_t>(stage)];
    largest = std::max({largest, costs.recompute_buffer, costs.logits_buffer});
    replicas = std::max(replicas, costs.gathered_weights + costs.gathered_gradients);
    offload = std::max(offload, costs.offload_buffer);
  }
  const double slices = step.program.slices_per_microbatch;  // what belongs to a pass is that of a slice
  largest = (largest + offload) / slices + replicas;
  const Layout& layout = step.job.layout;
  if (!layout.sequence_parallel || layout.tp == 1) return largest;
  const double tokens =
      static_cast<double>(layout.micro_batch_size) * step.job.training.sequence_length / (layout.cp * slices);
  return largest + element_size(step.job.training.precision) * (tokens * step.job.model.hidden);
}

struct HeldParameters {
  double all = 0.0;
  double experts = 0.0;
};

HeldParameters parameters_of(const PreparedStep& step, int rank) {
  HeldParameters parameters;
  for (int stage = 0; stage < step.stages.stages(); ++stage) {
    const std::size_t index = static_cast<std::size_t>(stage);
    if (step.stages.rank_of_stage[index] != rank) continue;
    parameters.all += step.costs.stages[index].parameters;
    parameters.experts += step.costs.stages[index].expert_parameters;
  }
  return parameters;
}

// What compression did not send is kept and added to the next step's gradients.
Bytes residuals_of(const Job& job, double parameters) {
  const Compression::Kind kind = job.layout.compression.kind;
  const bool keeps = kind == Compression::Kind::kTopK || kind == Compression::Kind::kPowerSgd;
  return Bytes(keeps ? job.training.stack.gradient_bytes * parameters : 0.0);
}

}  // namespace

MemoryForecast forecast_memory(const PreparedStep& step, const Timeline& timeline,
                               const std::vector<int>& weight_versions) {
  const Job& job = step.job;
  std::vector<double> held_bytes;
  for (const StageCosts& stage : step.costs.stages) {
    held_bytes.push_back(stage.activation.value() / step.program.slices_per_microbatch);
  }
  const std::vector<int> in_flight = peak_in_flight(step.program);

  MemoryForecast forecast;
  forecast.result.capacity_gib = gibibytes(memory_capacity(job, 0));
  for (int rank = 0; rank < step.program.rank_count(); ++rank) {
    const HeldParameters parameters = parameters_of(step, rank);
    const double copies = weight_versions[static_cast<std::size_t>(rank)] - 1;
    const ModelStates states = model_states(job.layout, job.training, parameters.all, parameters.experts);
    const Bytes versions = states.weights * copies;
    const Bytes workspace = workspace_of(step, rank) + residuals_of(job, parameters.all);
    const double base = (states.total() + versions + workspace).value();
    const RankMemory over_time = memory_over_time(timeline, rank, base, held_bytes);

    RankMemoryResult memory;
    memory.weights_gib = gibibytes(states.weights);
    memory.gradients_gib = gibibytes(states.gradients);
    memory.optimizer_gib = gibibytes(states.optimizer);
    memory.activations_gib = gibibytes(Bytes(over_time.peak_bytes - base));
    memory.weight_versions_gib = gibibytes(versions);
    memory.workspace_gib = gibibytes(workspace);
    memory.total_gib = memory.weights_gib + memory.gradients_gib + memory.optimizer_gib + memory.activations_gib +
                       memory.weight_versions_gib + memory.workspace_gib;
    const int slices = step.program.slices_per_microbatch;
    memory.peak_in_flight = (in_flight[static_cast<std::size_t>(rank)] + slices - 1) / slices;
    forecast.result.peak_gib = std::max(forecast.result.peak_gib, memory.total_gib);
    memory.capacity_gib = gibibytes(memory_capacity(job, rank));
    forecast.result.capacity_gib = std::min(forecast.result.capacity_gib, memory.capacity_gib);
    forecast.result.fits = forecast.result.fits && memory.total_gib <= memory.capacity_gib;
    forecast.result.per_pipeline_rank.push_back(memory);
    forecast.over_time.push_back(over_time);
  }
  return forecast;
}

}  // namespace flopcast
