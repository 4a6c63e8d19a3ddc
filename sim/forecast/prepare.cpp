#include "sim/forecast/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "model/error/error.hpp"
#include "sim/forecast/program_file.hpp"
#include "sim/forecast/spread_layers.hpp"
#include "sim/forecast/stage_map.hpp"

namespace flopcast {

namespace {

constexpr int kAsynchronousStretch = 4;  // microbatches per pipeline rank

[[noreturn]] void fail(const Job& job, const std::string& field, const std::string& problem, const std::string& help) {
  throw ConfigError({field, problem, job.origins.where(field), help});
}

std::string default_schedule(Job& job) {
  const bool one_microbatch = job.layout.microbatches() == 1;
  const bool chunked = job.layout.vpp.value_or(1) > 1;
  std::string name = chunked ? "interleaved" : (one_microbatch ? "naive" : "1f1b");
  if (job.layout.pp > 1) job.assumptions.push_back("layout.schedule is " + name);
  return name;
}

// A schedule's complaint is about the job's own fields, and points there.
[[noreturn]] void fail_schedule(const Job& job, const Diagnostic& diagnostic) {
  throw ConfigError({"layout.schedule", diagnostic.problem, job.origins.where("layout.schedule"), diagnostic.help});
}

void generate_program(PreparedStep& step) {
  Job& job = step.job;
  if (job.layout.schedule.empty()) job.layout.schedule = default_schedule(job);
  ScheduleName name;
  try {
    name = parse_schedule_name(job.layout.schedule);
  } catch (const ConfigError& error) {
    fail_schedule(job, error.diagnostic());
  }
  if (name.chunks && job.layout.vpp && *name.chunks != *job.layout.vpp) {
    fail(job, "layout.vpp", fmt::format("{} contradicts layout.schedule {}", *job.layout.vpp, job.layout.schedule),
         "give one of the two");
  }
  step.schedule = name.info;
  if (!name.chunks && !job.layout.vpp && name.info->default_chunks > 1) {
    job.assumptions.push_back(
        fmt::format("layout.vpp is {}, the default of {}", name.info->default_chunks, name.info->name));
  }
  const int vpp = name.chunks ? *name.chunks : job.layout.vpp.value_or(name.info->default_chunks);
  job.layout.vpp = vpp;
  step.request.pipeline_ranks = job.layout.pp;
  const int microbatches = job.layout.microbatches();
  step.request.microbatches = microbatches;
  step.request.chunks = vpp;
  for (const ScheduleNumber& number : schedule_numbers()) step.request.*number.request = job.layout.*number.layout;
  step.request.variant = name.variant;
  if (name.info->asynchronous) {
    // Updates per step need not be whole, but the stretch that is drawn and held in memory must reach the steady state.
    step.request.accumulation = name.info->weights.accumulation(step.request);
    if (!job.layout.accumulation) {
      job.assumptions.push_back(
          fmt::format("weights are updated after every {} microbatches", *step.request.accumulation));
    }
    step.request.microbatches =
        std::max({microbatches, 2 * *step.request.accumulation, kAsynchronousStretch * job.layout.pp});
  }
  if (const auto refusal = refuse_request(*name.info, step.request)) {
    fail(job, "layout.schedule", fmt::format("{}: {}", name.info->name, refusal->problem), refusal->help);
  }
  // Stages can be priced without the order; where that depends on the prices, it follows them.
  step.program =
      name.info->uses_times ? stages_of_schedule(*name.info, step.request) : name.info->generate(step.request);
  const int slices = step.program.slices_per_microbatch;
  if (slices == 1) return;
  job.layout.slices = slices;
  job.assumptions.push_back(fmt::format(
      "each of {} token slices takes an even share of its microbatch's time, however many tokens it attends to",
      slices));
}

Ticks picoseconds(Seconds time) {
  constexpr double kPerSecond = 1e12;
  constexpr double kLargest = 9e18;
  const double ticks = std::round(time.value() * kPerSecond);
  if (!(ticks < kLargest)) {
    throw ConfigError({"", fmt::format("a single pass takes {:.3g} s, too long to simulate", time.value()), "",
                       "a step may last 107 days"});
  }
  return static_cast<Ticks>(ticks);
}

// A stage's buckets as one reduction that ends when the last of them does. Buckets queue: with the stream free at f
// they end at max(f + ΣD, max over i of (ready_i + Σ from i on of D)), which is when one reduction of ΣD ends that may
// start at max_i(ready_i + Σ from i on of D) - ΣD.
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
    times.overlapped_reductions[rank].push_back(merged_buckets(costs, static_cast<int>(stage), pass));
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
    times.stages.push_back(passes);
  }
  for (const BoundaryCosts& boundary : step.costs.boundaries) {
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

// What a schedule may know of the step: its passes and transfers.
StepTimes pass_times(const StepTimes& times) {
  StepTimes passes;
  passes.stages = times.stages;
  passes.boundaries = times.boundaries;
  return passes;
}

}  // namespace

void price(PreparedStep& step) {
  step.costs = price_step(step.job, step.stages, step.job.layout.stage_layers);
  step.times = times_of(step);
  if (step.schedule == nullptr || !step.schedule->uses_times) return;
  step.request.times = pass_times(step.times);
  step.program = step.schedule->generate(step.request);
  step.times = times_of(step);
}

PreparedStep prepare(Job job, const ReadFile& read_file) {
  PreparedStep step;
  step.job = std::move(job);
  const bool from_file = has_program_file(step.job);
  if (!from_file && !step.job.layout.chains.empty()) {
    fail(step.job, "layout.chains", fmt::format("{} is for a schedule in a file", step.job.layout.chains),
         "layout.schedule file:PATH, or leave it out");
  }
  if (from_file) {
    step.program = read_program_file(step.job, read_file);
  } else {
    generate_program(step);
  }
  step.stages = stage_map_of(step.program);
  spread_layers(step);
  price(step);
  return step;
}

}  // namespace flopcast
