// Computes the time and memory of a prepared step. Nothing else does.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "model/hardware/network_fabric.hpp"
#include "sim/forecast/network_step.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Requested level of detail.
enum class Detail {
  kTime,      ///< time and memory of the step
  kProfile,   ///< also how the time is spent
  kTimeline,  ///< also the timeline
};

/// Memory that consecutive evaluations reuse.
struct PlayBuffers {
  LoweredStep lowered;
  EngineResult result;
};

struct EvaluationOptions {
  /// With a network, the step is simulated on each of these and the first of the fastest counts; empty: on the job's
  /// own.
  std::vector<Allocation> allocations = {};
  bool time_of_misfits = true;     ///< false: a step that does not fit gets no time
  PlayBuffers* buffers = nullptr;  ///< null: allocates its own
};

/// Breakdown of a step's time, and its timeline.
struct StepHistory {
  StepProfile profile;
  std::size_t exchanges = 0;  ///< spans of add_exchange_spans
  /// For an asynchronous schedule, a stretch from its start. Timeline and memory are empty for Detail::kProfile if the
  /// step is simulated only until it repeats.
  Timeline timeline;
  std::vector<RankMemory> memory;      ///< over time, indexed by pipeline rank
  std::optional<NetworkStep> network;  ///< on shared links; its timeline has been moved out
  std::optional<AsynchronousProfile> steady;
};

struct Evaluation {
  double time_s = 0.0;  ///< of one step; asynchronous: of global_batch_size samples in the steady state
  MemoryResult memory;
  std::size_t allocation = 0;          ///< index of the allocation with that time_s
  std::optional<StepHistory> history;  ///< unless only the time is requested
};

/// Synchronous schedules: the makespan of pipeline, gradient reduction and optimizer. Asynchronous schedules: the
/// steady state. Clusters with a network: network_step.hpp. Memory comes from rank_memory.
Evaluation evaluate(const PreparedStep& step, Detail detail, const EvaluationOptions& options = {});

/// Bytes of the rank that fills its device most, as a fraction of that device's memory.
struct FullestRank {
  double share = 0.0;
  double bytes = 0.0;  ///< bytes of the fullest rank, as in nvidia-smi
};
FullestRank fullest_share(const MemoryResult& memory);

}  // namespace flopcast
