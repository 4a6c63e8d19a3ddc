#include "sim/forecast/memory.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/data_parallel.hpp"
#include "model/cost/uneven_costs.hpp"
#include "sim/forecast/workspace.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

namespace {

struct HeldParameters {
  double all = 0.0;
  double experts = 0.0;
};

HeldParameters parameters_of(const StageMap& map, const StepCosts& costs, int rank) {
  HeldParameters parameters;
  for (int stage = 0; stage < map.stages(); ++stage) {
    const std::size_t index = static_cast<std::size_t>(stage);
    if (map.rank_of_stage[index] != rank) continue;
    parameters.all += costs.stages[index].parameters;
    parameters.experts += costs.stages[index].expert_parameters;
  }
  return parameters;
}

}  // namespace

StandingMemory standing_memory(const Job& job, const StageMap& stages, const StepCosts& costs, int slices, int rank,
                               int versions) {
  const HeldParameters parameters = parameters_of(stages, costs, rank);
  StandingMemory standing;
  standing.states = model_states(job.layout, job.training, parameters.all, parameters.experts);
  standing.versions = standing.states.weights * static_cast<double>(versions - 1);
  standing.workspace = workspace_of(job, stages, costs, slices, rank).total();
  return standing;
}

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
    const StandingMemory standing = standing_memory(job, step.stages, step.costs, step.program.slices_per_microbatch,
                                                    rank, weight_versions[static_cast<std::size_t>(rank)]);
    const double base = standing.total().value();
    const RankMemory over_time = memory_over_time(timeline, rank, base, held_bytes);

    RankMemoryResult memory;
    memory.weights_gib = gibibytes(standing.states.weights);
    memory.gradients_gib = gibibytes(standing.states.gradients);
    memory.optimizer_gib = gibibytes(standing.states.optimizer);
    memory.activations_gib = gibibytes(Bytes(over_time.peak_bytes - base));
    memory.weight_versions_gib = gibibytes(standing.versions);
    memory.workspace_gib = gibibytes(standing.workspace);
    memory.total_gib = memory.weights_gib + memory.gradients_gib + memory.optimizer_gib + memory.activations_gib +
                       memory.weight_versions_gib + memory.workspace_gib;
    memory.shown_gib = memory.total_gib + job.training.stack.memory_overhead_gib;
    const int slices = step.program.slices_per_microbatch;
    memory.peak_in_flight = (in_flight[static_cast<std::size_t>(rank)] + slices - 1) / slices;
    forecast.result.peak_gib = std::max(forecast.result.peak_gib, memory.total_gib);
    forecast.result.shown_gib = std::max(forecast.result.shown_gib, memory.shown_gib);
    memory.capacity_gib = gibibytes(memory_capacity(job, rank));
    forecast.result.capacity_gib = std::min(forecast.result.capacity_gib, memory.capacity_gib);
    forecast.result.fits = forecast.result.fits && memory.shown_gib <= memory.capacity_gib;
    forecast.result.per_pipeline_rank.push_back(memory);
    forecast.over_time.push_back(over_time);
  }
  return forecast;
}

}  // namespace flopcast
