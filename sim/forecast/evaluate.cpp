#include "sim/forecast/evaluate.hpp"

#include <algorithm>
#include <utility>

#include "base/text/error.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

// Deadlocks are reported by make_timeline, which names the actions that wait for each other.
double plain_seconds(const PreparedStep& step) {
  LoweredStep lowered;
  EngineResult result;
  lower(step.program, step.times, lowered);
  run(lowered.graph, result);
  if (result.deadlocked()) make_timeline(step.program, step.times, lowered, result);
  return static_cast<double>(result.makespan) * kSecondsPerTick;
}

void take_time(const PreparedStep& step, const EvaluationOptions& options, Evaluation& answer) {
  if (step.program.asynchronous) {
    answer.time_s = profile_of_steady_step(step).step.time_s;
  } else if (step.job.cluster.shares_links()) {
    const std::vector<double> times = network_step_seconds(step, options.allocations);
    const auto fastest = std::min_element(times.begin(), times.end());
    answer.allocation = static_cast<std::size_t>(fastest - times.begin());
    answer.time_s = *fastest;
  } else {
    answer.time_s = plain_seconds(step);
  }
}

StepHistory history_of(const PreparedStep& step) {
  StepHistory history;
  if (step.job.cluster.shares_links()) {
    history.network = simulate_on_network(step);
    history.timeline = std::move(history.network->timeline);
  } else {
    history.timeline = simulate(step.program, step.times);
  }
  if (step.program.asynchronous) {
    history.steady = profile_of_steady_step(step);
    history.profile = history.steady->step;
  } else {
    history.profile = profile_of_flushed_step(history.timeline);
  }
  history.memory = memory_over_time(step, history.timeline);
  return history;
}

}  // namespace

Evaluation evaluate(const PreparedStep& step, Detail detail, const EvaluationOptions& options) {
  Evaluation answer;
  answer.memory = step_memory(step);
  if (detail == Detail::kTimeline) {
    answer.history = history_of(step);
    answer.time_s = answer.history->profile.time_s;
  } else if (options.time_of_misfits || answer.memory.fits) {
    take_time(step, options, answer);
  }
  return answer;
}

FullestRank fullest_share(const MemoryResult& memory) {
  FullestRank fullest;
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    fullest.share = std::max(fullest.share, rank.shown_gib / rank.capacity_gib);
    fullest.bytes = std::max(fullest.bytes, rank.shown_gib * kGibibyte);
  }
  return fullest;
}

}  // namespace flopcast
