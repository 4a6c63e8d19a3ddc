#pragma once

#include <vector>

#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

struct MemoryForecast {
  MemoryResult result;
  std::vector<RankMemory> over_time;  ///< bytes, by pipeline rank
};

/// Memory per device, by pipeline rank.
///
///   weights, gradients, optimizer   e·Ψ, g·Ψ, K·Ψ, cut over the replicas as ZeRO, fsdp or hsdp say: model_states()
///   activations  what the operators keep, for the microbatches that the schedule holds at its fullest moment; a token
///                slice's share of a microbatch
///   versions     e·Ψ for each weight version beyond the first
///   workspace    the largest of: a block's activations while recomputation has them, the gradient of the logits; and
///   with
///                sequence parallelism the gathered input of a linear;
///                beside it what sharded weights have gathered, offloaded activations on their way, and the residuals
///                of compression
/// Left out: CUDA context, communication buffers, fragmentation.
MemoryForecast forecast_memory(const PreparedStep& step, const Timeline& timeline,
                               const std::vector<int>& weight_versions);

}  // namespace flopcast
