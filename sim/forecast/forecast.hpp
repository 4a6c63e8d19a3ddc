#pragma once

#include <vector>

#include "sim/forecast/network_step.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// A job's answer and what it was read from. One pipeline stands for all: tensor-, context- and data-parallel ranks of
/// a pipeline rank do the same at the same time, so the timeline has one row per pipeline rank. Where the cluster has a
/// network, replicas may differ, and the timeline is that of one which ends last.
struct Forecast {
  PreparedStep step;
  Timeline timeline;               ///< of one step; of an asynchronous schedule, a stretch of its run from the start
  std::vector<RankMemory> memory;  ///< over time, by pipeline rank
  Result result;
  std::vector<HotLink> links;   ///< of a cluster with a network: all that carry something while the step waits
  std::vector<LinkLoad> loads;  ///< and by link of its fabric
  std::vector<SharedMessages> messages;
};

/// Simulates one training step.
///
/// Synchronous schedules: time_s is the makespan of pipeline, gradient reduction and optimizer.
/// Asynchronous schedules: time_s is what global_batch_size samples take in the steady state, one update after each
/// `accumulation` microbatches; filling the pipeline is reported apart.
/// Clusters with a network: see network_step.hpp.
/// Left out: stragglers, data loading, checkpoints.
Forecast forecast(const Job& job, const ReadFile& read_file);
/// The same result without timeline, memory over time and messages: of a step that repeats as much is played as it
/// takes to show that, and `step` has that much of its program.
Forecast forecast_figures(const Job& job, const ReadFile& read_file);
/// iteration.time_s of it and nothing else, in seconds.
double step_time(const Job& job, const ReadFile& read_file);

/// What a timeline of one step tells of a job, forecast or measured: everything but memory and what was sent.
/// Communication inside actions (tensor parallelism, ZeRO 3) counts as compute.
Result result_of_timeline(const Job& job, const Timeline& step);

}  // namespace flopcast
