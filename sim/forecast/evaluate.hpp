// The one place that says how long a prepared step takes and what memory it needs.
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

/// How much of a step is asked for.
enum class Detail {
  kTime,      ///< its time and memory
  kProfile,   ///< also what the time is spent on
  kTimeline,  ///< also what happens when
};

/// Memory that evaluations one after the other use again.
struct PlayBuffers {
  LoweredStep lowered;
  EngineResult result;
};

struct EvaluationOptions {
  /// On a network the step is played on each of them, and the first of the fastest counts; none: on the job's own.
  std::vector<Allocation> allocations = {};
  bool time_of_misfits = true;     ///< false: a step that does not fit has no time
  PlayBuffers* buffers = nullptr;  ///< none: its own
};

/// Breakdown of a step's time, and its timeline.
struct StepHistory {
  StepProfile profile;
  std::size_t exchanges = 0;  ///< spans of add_exchange_spans
  /// For an asynchronous schedule, a stretch from its start. Timeline and memory are empty for Detail::kProfile if the
  /// step is played only until it repeats.
  Timeline timeline;
  std::vector<RankMemory> memory;      ///< over time, by pipeline rank
  std::optional<NetworkStep> network;  ///< on shared links; its timeline has moved
  std::optional<AsynchronousProfile> steady;
};

struct Evaluation {
  double time_s = 0.0;  ///< of one step; of an asynchronous schedule of global_batch_size samples in the steady state
  MemoryResult memory;
  std::size_t allocation = 0;          ///< of the options', the one that time_s is of
  std::optional<StepHistory> history;  ///< unless only the time is asked for
};

/// Plain steps: the makespan of pipeline, gradient reduction and optimizer. Asynchronous schedules: the steady state.
/// Clusters with a network: network_step.hpp. Memory is of rank_memory.
Evaluation evaluate(const PreparedStep& step, Detail detail, const EvaluationOptions& options = {});

/// The bytes of the rank that is fullest for its device, as a share of that device's memory.
struct FullestRank {
  double share = 0.0;
  double bytes = 0.0;  ///< of the rank with most, as nvidia-smi shows it
};
FullestRank fullest_share(const MemoryResult& memory);

}  // namespace flopcast
