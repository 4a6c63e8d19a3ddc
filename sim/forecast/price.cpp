#include "sim/forecast/prepare.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/text/error.hpp"
#include "model/cost/pricing.hpp"
#include "model/partition/balanced_split.hpp"
#include "sim/forecast/evaluate.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

namespace {

Ticks picoseconds(Seconds time) {
  constexpr double kPerSecond = 1e12;
  constexpr double kLargest = 9e18;
  const double ticks = std::round(time.value() * kPerSecond);
  if (!(ticks < kLargest)) {
    throw ConfigError({"", fmt::format("a single pass takes {:.3g} s, too long to simulate", time.value()), "",
                       "a step can last at most 107 days"});
  }
  return static_cast<Ticks>(ticks);
}

// Merges a stage's buckets into one reduction that ends when the last of them does. Buckets queue: with the stream free
// at f they end at max(f + ΣD, max over i of (ready_i + Σ from i on of D)), which is the end of one reduction of ΣD
// that may start at max_i(ready_i + Σ from i on of D) - ΣD.
OverlappedReduction merged_buckets(const StageCosts& costs, int stage, Ticks pass) {
  double total = 0.0;
  for (const GradientBucket& bucket : costs.buckets) total += bucket.reduction.value();
  const double pass_s = static_cast<double>(pass) * kSecondsPerTick;
  double left = total;
  double end = -pass_s;
  for (const GradientBucket& bucket : costs.buckets) {
    end = std::max(end, left - bucket.remaining * pass_s);
    left -= bucket.reduction.value();
  }
  return {stage, picoseconds(Seconds(std::max(0.0, total - end))), picoseconds(Seconds(total))};
}

void add_overlapped_reductions(const PreparedStep& step, StepTimes& times) {
  std::vector<bool> splits(step.costs.stages.size(), false);
  bool any = false;
  for (const StageCosts& stage : step.costs.stages) any = any || !stage.buckets.empty();
  if (!any) return;
  for (const std::vector<Action>& actions : step.program.ranks) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kWeightGradient) splits[action.stage] = true;
    }
  }
  times.overlapped_reductions.resize(step.costs.ranks.size());
  for (std::size_t stage = 0; stage < step.costs.stages.size(); ++stage) {
    const StageCosts& costs = step.costs.stages[stage];
    if (costs.buckets.empty()) continue;
    const Ticks pass = splits[stage] ? times.stages[stage].weight_gradient : times.stages[stage].backward;
    const std::size_t rank = static_cast<std::size_t>(step.stages.rank_of_stage[stage]);
    const OverlappedReduction merged = merged_buckets(costs, static_cast<int>(stage), pass);
    times.overlapped_reductions[rank].push_back(merged);
    // A reduction that overlaps with the pass slows the pass, and everything after it waits for the pass. The network's
    // latency slows nothing.
    const auto hidden = static_cast<double>(std::min(merged.duration, merged.ready_before_end));
    const double slowdown =
        overlap_slowdown(step.job.cluster.device) * (costs.bucket_traffic.on_links / costs.bucket_traffic.time);
    times.flush[rank].gradient_reduction += static_cast<Ticks>(hidden * slowdown);
  }
}

StepTimes times_of(const PreparedStep& step) {
  StepTimes times;
  const double slices = step.program.slices_per_microbatch;
  for (const StageCosts& stage : step.costs.stages) {
    StageTimes passes;
    const Seconds input_gradient = stage.recompute.total() + stage.input_gradient.total();
    passes.forward = picoseconds(stage.forward.total() / slices);
    passes.input_gradient = picoseconds((input_gradient + stage.split_slowdown) / slices);
    passes.weight_gradient = picoseconds(stage.weight_gradient.total() / slices);
    passes.backward = picoseconds((input_gradient + stage.weight_gradient.total() - stage.tp_hidden) / slices);
    passes.pair_saved = picoseconds(stage.pair_saved / slices);
    times.stages.push_back(passes);
  }
  for (std::size_t index = 0; index < step.costs.boundaries.size(); ++index) {
    const BoundaryCosts& boundary = step.costs.boundaries[index];
    const Ticks slowdown = picoseconds(boundary.slowdown);
    StageTimes& sender = times.stages[index];
    // A transfer that outlasts the overlapped pass slows only that pass.
    for (Ticks* pass : {&sender.forward, &sender.input_gradient, &sender.backward}) {
      const double most = static_cast<double>(*pass) * overlap_slowdown(step.job.cluster.device);
      *pass += std::min(slowdown, static_cast<Ticks>(most));
    }
    times.boundaries.push_back({picoseconds(boundary.forward), picoseconds(boundary.backward)});
  }
  times.blocking_sends = step.job.training.stack.blocking_sends;
  if (step.program.asynchronous) return times;
  for (const FlushCosts& rank : step.costs.ranks) {
    FlushTimes flush;
    flush.gradient_reduction = picoseconds(rank.gradient_reduction);
    flush.embedding_reduction = picoseconds(rank.embedding_reduction);
    flush.gradient_norm = picoseconds(rank.gradient_norm);
    flush.optimizer = picoseconds(rank.optimizer);
    flush.parameter_gather = picoseconds(rank.parameter_gather);
    times.flush.push_back(flush);
  }
  add_overlapped_reductions(step, times);
  return times;
}

// The part of a step that a schedule may depend on: its passes and transfers.
StepTimes pass_times(const StepTimes& times) {
  StepTimes passes;
  passes.stages = times.stages;
  passes.boundaries = times.boundaries;
  return passes;
}

[[noreturn]] void fail_split(const Job& job, const std::string& field, const std::string& problem,
                             const std::string& help) {
  throw ConfigError({field, problem, job.origins.where(field), help});
}

// Layers by stage, and the step time with them.
struct Split {
  std::vector<int> stage_layers;
  double time_s = 0.0;
  bool fits = false;
};

void evaluate_split(PreparedStep step, Split& split) {
  step.job.layout.stage_layers = split.stage_layers;
  price(step);
  const Evaluation evaluation = evaluate(step, Detail::kTime);
  split.time_s = evaluation.time_s;
  split.fits = evaluation.memory.fits;
}

// The same costs as if every stage had its own rank, which favours splits that fill and drain the pipeline fastest.
SplitCosts stage_by_stage(SplitCosts costs) {
  std::iota(costs.rank_of_stage.begin(), costs.rank_of_stage.end(), 0);
  return costs;
}

std::vector<int> balanced_by_simulation(const PreparedStep& step) {
  const Job& job = step.job;
  const int stages = step.stages.model_stages;
  std::vector<int> even = even_stage_layers(job.model.layers, stages);
  if (stages == 1) return even;
  if (job.training.stack.balances_by_parameters) return split_by_parameters(job.model, stages);
  const SplitCosts costs = split_costs(job, step.stages);
  std::vector<Split> splits = {{even}};
  const auto add = [&splits](std::vector<int> layers) {
    const auto same = [&layers](const Split& known) { return known.stage_layers == layers; };
    if (std::none_of(splits.begin(), splits.end(), same)) splits.push_back({std::move(layers)});
  };
  add(balanced_split(costs, even));
  const bool one_chain = step.stages.stages() == stages;
  if (one_chain && stages > job.layout.pp) add(balanced_split(stage_by_stage(costs), even));
  if (splits.size() == 1) return even;
  for (Split& split : splits) evaluate_split(step, split);
  const auto better = [](const Split& a, const Split& b) { return a.fits != b.fits ? a.fits : a.time_s < b.time_s; };
  return std::min_element(splits.begin(), splits.end(), better)->stage_layers;
}

void choose_layers(PreparedStep& step) {
  Job& job = step.job;
  const int stages = step.stages.model_stages;
  const bool balanced = job.layout.stage_split.value_or(job.profile ? StageSplit::kBalanced : StageSplit::kUniform) ==
                        StageSplit::kBalanced;
  std::vector<int>& layers = job.layout.stage_layers;
  if (balanced && job.profile) {
    layers = balanced_stage_layers(*job.profile, stages);
    job.assumptions.push_back(
        fmt::format("layout.stage_layers balances the profile's times: {}", fmt::join(layers, ", ")));
  } else if (balanced) {
    layers = balanced_by_simulation(step);
    const bool by_parameters = job.training.stack.balances_by_parameters;
    job.assumptions.push_back(fmt::format(
        "layout.stage_layers is balanced, {}: {}",
        by_parameters ? "with even GEMM parameters, as the stack splits" : "the fastest of the splits tried",
        fmt::join(layers, ", ")));
  } else {
    layers = even_stage_layers(job.model.layers, stages);
    if (job.layout.stage_split || job.model.layers % stages != 0) {
      job.assumptions.push_back(fmt::format("layout.stage_layers is {}", fmt::join(layers, ", ")));
    }
  }
}

void check_listed_layers(const Job& job, int stages) {
  const std::vector<int>& layers = job.layout.stage_layers;
  const std::string given = fmt::format("[{}]", fmt::join(layers, ", "));
  if (static_cast<int>(layers.size()) != stages) {
    fail_split(job, "layout.stage_layers", fmt::format("{} has {} entries for {} stages", given, layers.size(), stages),
               fmt::format("give {} numbers", stages));
  }
  const long sum = std::accumulate(layers.begin(), layers.end(), 0L);
  if (sum != job.model.layers) {
    fail_split(job, "layout.stage_layers",
               fmt::format("{} sums to {}, but the model has {} layers", given, sum, job.model.layers), "");
  }
}

}  // namespace

namespace {

// Each update fetches the states kept in host memory, and writes them back.
void add_paging(PreparedStep& step) {
  Bytes most;
  for (int rank = 0; rank < step.job.layout.pp; ++rank) {
    const Bytes paged = rank_memory(step.job, step.costs, step.held[static_cast<std::size_t>(rank)],
                                    step.program.slices_per_microbatch, rank, 1)
                            .paged;
    if (paged <= Bytes(0)) continue;
    most = std::max(most, paged);
    step.costs.ranks[static_cast<std::size_t>(rank)].optimizer += paged * 2.0 / step.job.cluster.host_bandwidth;
  }
  if (most <= Bytes(0)) return;
  step.job.assumptions.push_back(
      fmt::format("{:.1f} GiB of optimizer states are kept in host memory and transferred there and back in each step",
                  gibibytes(most)));
}

}  // namespace

void price(PreparedStep& step) {
  step.costs = price_step(step.job, step.stages, step.job.layout.stage_layers);
  if (step.job.training.paged_optimizer) add_paging(step);
  step.times = times_of(step);
  if (step.schedule == nullptr || !step.schedule->uses_times) return;
  step.request.times = pass_times(step.times);
  step.program = step.schedule->generate(step.request);
  step.held = held_activations(step.program);
  step.times = times_of(step);
}

void spread_layers(PreparedStep& step) {
  Job& job = step.job;
  const int stages = step.stages.model_stages;
  if (!job.layout.stage_layers.empty()) {
    check_listed_layers(job, stages);
    return;
  }
  if (stages > job.model.layers) {
    fail_split(job, "layout.pp",
               fmt::format("pp {} · vpp {} = {} stages for {} layers", job.layout.pp, *job.layout.vpp, stages,
                           job.model.layers),
               fmt::format("at most {} stages", job.model.layers));
  }
  choose_layers(step);
}

namespace {

double seconds(double ticks) {
  return ticks * kSecondsPerTick;
}

// Subtracts, without letting rounding make the result negative.
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

// Time that the updates of an asynchronous step add to the pipeline's time on one rank.
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
  // Gradients of one update travel while the next ones are computed; the slower of the two sets the pace. The slowest
  // rank sets it for all: the additional wait of the others is a bubble.
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
  // In the converged windows a rank's work and its exposed waits sum to exactly the period. Stages that differ little
  // converge over more microbatches than any window, so the wait measured in one is bounded by the time that the rank
  // has to spare.
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
  // Without a flush nothing warms up or cools down: a rank waits because it has less work, or for its neighbours.
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
