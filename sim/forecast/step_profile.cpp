#include "sim/forecast/prepare.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

namespace {

double seconds(double ticks) {
  return ticks * kSecondsPerTick;
}

// What is left of `whole`; rounding must not make nothing into less than nothing.
double difference(double whole, double part) {
  return std::max(0.0, whole - part);
}

double mean_time(const TimelineMetrics& metrics, SpanKind kind) {
  double sum = 0.0;
  for (const RankMetrics& rank : metrics.ranks)
    sum += static_cast<double>(rank.time_by_kind[static_cast<std::size_t>(kind)]);
  return sum / static_cast<double>(metrics.ranks.size());
}

TimelineMetrics measure_run(const PreparedStep& step, int microbatches) {
  ScheduleRequest request = step.request;
  request.microbatches = microbatches;
  return measure(simulate(step.schedule->generate(request), step.times));
}

// What the updates of an asynchronous step add to the pipeline's time on one rank.
struct UpdateTimes {
  double exposed = 0.0;  // reduction of gradients beyond the pipeline's time
  double optimizer = 0.0;
  double total() const { return exposed + optimizer; }
};

std::vector<UpdateTimes> times_of_updates(const StepCosts& costs, double updates, double pipeline) {
  std::vector<UpdateTimes> times;
  for (const FlushCosts& rank : costs.ranks) {
    times.push_back({std::max(0.0, rank.dp.time.value() * updates - pipeline), rank.optimizer.value() * updates});
  }
  return times;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double StepProfile::bubble_total_s() const {
  return std::accumulate(bubble_s.begin(), bubble_s.end(), 0.0);
}

StepProfile profile_of_flushed_step(const Timeline& timeline) {
  return profile_of_flushed_step(measure(timeline));
}

StepProfile profile_of_flushed_step(const TimelineMetrics& metrics) {
  StepProfile profile;
  profile.time_s = seconds(static_cast<double>(metrics.makespan));
  profile.optimizer_s = seconds(mean_time(metrics, SpanKind::kOptimizer));
  profile.actions_s = seconds(metrics.mean(&RankMetrics::busy)) - profile.optimizer_s;
  profile.exposed_pipeline_s = seconds(metrics.mean(&RankMetrics::exposed_pipeline));
  profile.exposed_data_parallel_s = seconds(metrics.mean(&RankMetrics::exposed_data_parallel));
  for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
    profile.bubble_s[cause] = seconds(metrics.mean_bubble(static_cast<BubbleCause>(cause)));
  }
  profile.span_s = seconds(static_cast<double>(metrics.longest_span()));
  for (const RankMetrics& rank : metrics.ranks) {
    const Ticks occupied = metrics.makespan - rank.bubble();
    profile.busiest_rank_s = std::max(profile.busiest_rank_s, seconds(static_cast<double>(occupied)));
    profile.bubble_share.push_back(static_cast<double>(rank.bubble()) / static_cast<double>(metrics.makespan));
  }
  return profile;
}

AsynchronousProfile profile_of_steady_step(const PreparedStep& step) {
  const auto generate = [&step](int microbatches) {
    ScheduleRequest request = step.request;
    request.microbatches = microbatches;
    return step.schedule->generate(request);
  };
  const SteadyState steady = steady_state(generate, step.times);
  const int window = steady.window_microbatches;
  const int start = std::max(step.request.microbatches, steady.start_microbatches);
  const TimelineMetrics shorter = measure_run(step, start);
  const TimelineMetrics longer = measure_run(step, start + window);

  const double microbatches = step.job.layout.microbatches();
  const double updates = microbatches / *step.request.accumulation;
  const double per_window = microbatches / window;
  // Gradients of one update travel while the next ones are computed; the slower of the two sets the pace.
  // The slowest rank sets it for all: what the others wait beyond their own is a bubble.
  const double pipeline = seconds(steady.period_ticks()) * microbatches;
  const std::vector<UpdateTimes> update_times = times_of_updates(step.costs, updates, pipeline);
  UpdateTimes longest;
  UpdateTimes mean;
  for (const UpdateTimes& rank : update_times) {
    longest.exposed = std::max(longest.exposed, rank.exposed);
    longest.optimizer = std::max(longest.optimizer, rank.optimizer);
    mean.exposed += rank.exposed / static_cast<double>(update_times.size());
    mean.optimizer += rank.optimizer / static_cast<double>(update_times.size());
  }

  AsynchronousProfile result;
  StepProfile& profile = result.step;
  profile.exposed_data_parallel_s = mean.exposed;
  profile.optimizer_s = mean.optimizer;
  profile.time_s = pipeline + longest.total();
  // In the settled windows a rank's work and what it waits for are exactly the period. Stages that differ by little
  // settle over more microbatches than any window: then what a rank waits in one is bounded by what it will have to
  // wait.
  std::vector<double> rank_busy;
  std::vector<double> rank_exposed;
  for (std::size_t rank = 0; rank < longer.ranks.size(); ++rank) {
    const RankMetrics& after = longer.ranks[rank];
    const RankMetrics& before = shorter.ranks[rank];
    rank_busy.push_back(seconds(static_cast<double>(after.busy - before.busy)) * per_window);
    const double exposed = seconds(static_cast<double>(after.exposed_pipeline - before.exposed_pipeline)) * per_window;
    rank_exposed.push_back(std::clamp(exposed, 0.0, difference(pipeline, rank_busy.back())));
  }
  const double busy = mean_of(rank_busy);
  profile.actions_s = busy;
  profile.exposed_pipeline_s = mean_of(rank_exposed);
  const double waiting = difference(pipeline, busy + profile.exposed_pipeline_s);
  for (std::size_t rank = 0; rank < rank_busy.size(); ++rank) {
    const double occupied = rank_busy[rank] + rank_exposed[rank];
    const double updating = update_times[rank].total();
    profile.busiest_rank_s = std::max(profile.busiest_rank_s, occupied + updating);
    profile.bubble_share.push_back((difference(pipeline, occupied) + difference(longest.total(), updating)) /
                                   profile.time_s);
  }
  const double busiest = *std::max_element(rank_busy.begin(), rank_busy.end());
  // Without a flush nothing warms up or cools down: a rank waits because it has less to do, or for its neighbours.
  const double imbalance = std::min(waiting, difference(busiest, busy));
  profile.bubble_s[static_cast<std::size_t>(BubbleCause::kImbalance)] =
      imbalance + difference(longest.total(), mean.total());
  profile.bubble_s[static_cast<std::size_t>(BubbleCause::kDependency)] = waiting - imbalance;
  profile.span_s = profile.time_s;
  result.period_s = profile.time_s / microbatches;
  result.fill_s = seconds(steady.fill_ticks);
  return result;
}

}  // namespace flopcast
