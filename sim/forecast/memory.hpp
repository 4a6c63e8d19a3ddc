#pragma once

#include <vector>

#include "model/cost/data_parallel.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

struct MemoryForecast {
  MemoryResult result;
  std::vector<RankMemory> over_time;  ///< bytes, by pipeline rank
};

/// What a pipeline rank holds beside activations.
struct StandingMemory {
  ModelStates states;
  Bytes versions;
  Bytes workspace;
  Bytes total() const { return states.total() + versions + workspace; }
};
/// From the costs alone; the memory of forecast_memory less its activations. `versions` of the weights are kept.
StandingMemory standing_memory(const Job& job, const StageMap& stages, const StepCosts& costs, int slices, int rank,
                               int versions);

/// Memory per device, by pipeline rank.
///
///   weights, gradients, optimizer   e·Ψ, g·Ψ, K·Ψ, cut over the replicas as ZeRO, fsdp or hsdp say: model_states()
///   activations  what the operators keep, for the microbatches that the schedule holds at its fullest moment; a token
///                slice's share of a microbatch
///   versions     e·Ψ for each weight version beyond the first
///   workspace    the larger of: a block's activations while recomputation has them, with the gradients of an
///                operator's inputs and outputs; the gradients of the logits and of their input;
///                beside it the gathered input of a linear with sequence parallelism, the placeholders of weight
///                gradients, what sharded weights have gathered, offloaded activations on their way, and the residuals
///                of compression
///   shown        what nvidia-smi prints: the total and the stack's memory_overhead, for the CUDA context,
///                communication buffers and fragmentation
/// It fits where every rank's `shown` does: the device has to hold the overhead as well.
MemoryForecast forecast_memory(const PreparedStep& step, const Timeline& timeline,
                               const std::vector<int>& weight_versions);

}  // namespace flopcast
