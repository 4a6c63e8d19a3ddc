#include "sim/forecast/memory.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/data_parallel.hpp"
#include "model/cost/uneven_costs.hpp"
#include "sim/forecast/memory_parts.hpp"
#include "sim/schedule/in_flight.hpp"

namespace flopcast {

namespace {

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
    Bytes workspace;
    for (const MemoryPart& part : workspace_parts(step, rank)) workspace += part.total();
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
    memory.shown_gib = memory.total_gib + job.training.stack.memory_overhead_gib;
    const int slices = step.program.slices_per_microbatch;
    memory.peak_in_flight = (in_flight[static_cast<std::size_t>(rank)] + slices - 1) / slices;
    forecast.result.peak_gib = std::max(forecast.result.peak_gib, memory.total_gib);
    forecast.result.shown_gib = std::max(forecast.result.shown_gib, memory.shown_gib);
    memory.capacity_gib = gibibytes(memory_capacity(job, rank));
    forecast.result.capacity_gib = std::min(forecast.result.capacity_gib, memory.capacity_gib);
    forecast.result.fits = forecast.result.fits && memory.total_gib <= memory.capacity_gib;
    forecast.result.per_pipeline_rank.push_back(memory);
    forecast.over_time.push_back(over_time);
  }
  return forecast;
}

}  // namespace flopcast
