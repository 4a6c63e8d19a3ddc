#pragma once

#include <vector>

#include "sim/forecast/network_step.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// A job's answer and the data behind it. One pipeline represents all: tensor-, context- and data-parallel ranks of a
/// pipeline rank do the same at the same time, so the timeline has one row per pipeline rank. If the cluster has a
/// network, replicas may differ, and the timeline shows one that ends last.
struct Forecast {
  PreparedStep step;
  Timeline timeline;               ///< of one step; for an asynchronous schedule, a stretch of its run from the start
  std::vector<RankMemory> memory;  ///< over time, indexed by pipeline rank
  Result result;
  std::vector<HotLink> links;   ///< with a network: all that carry traffic while the step waits
  std::vector<LinkLoad> loads;  ///< and indexed by link of its fabric
  std::vector<SharedMessages> messages;
};

/// Simulates one training step.
///
/// Synchronous schedules: time_s is the makespan of pipeline, gradient reduction and optimizer.
/// Asynchronous schedules: time_s is the time of global_batch_size samples in the steady state, with one update after
/// each `accumulation` microbatches; filling the pipeline is reported separately.
/// Clusters with a network: see network_step.hpp.
/// Left out: stragglers, data loading, checkpoints.
Forecast forecast(const Job& job, const ReadFile& read_file);
/// Same result without timeline, memory over time and messages: a step that repeats is simulated only until the
/// repetition shows, and `step` has that part of its program.
Forecast forecast_figures(const Job& job, const ReadFile& read_file);
/// Only iteration.time_s of that result, in seconds.
double step_time(const Job& job, const ReadFile& read_file);

/// Result of a job from a timeline of one step, forecast or measured: everything except memory and sent bytes.
/// Communication inside actions (tensor parallelism, ZeRO 3) counts as compute.
Result result_of_timeline(const Job& job, const Timeline& step);

}  // namespace flopcast
