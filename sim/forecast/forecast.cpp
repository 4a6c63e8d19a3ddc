#include "sim/forecast/forecast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "sim/forecast/fill_result.hpp"
#include "sim/forecast/interval.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/step_profile.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

constexpr double kSecondsPerDay = 86'400.0;
constexpr double kSecondsPerHour = 3'600.0;
constexpr double kNearlyFull = 0.9;

// How often a step runs each pass of a stage; overlap inside a full B counts only where B is used.
struct PassCounts {
  double forward = 0.0;
  double backward = 0.0;
};

std::vector<PassCounts> count_passes(const PreparedStep& step) {
  std::vector<PassCounts> counts(static_cast<std::size_t>(step.program.stage_count()));
  double first_stage_forwards = 0.0;
  for (const std::vector<Action>& actions : step.program.ranks) {
    for (const Action& action : actions) {
      PassCounts& stage = counts[action.stage];
      if (action.kind == ActionKind::kForward) stage.forward += 1.0;
      if (action.kind == ActionKind::kBackward) stage.backward += 1.0;
      if (action.kind == ActionKind::kForward && step.stages.model_stage(action.stage) == 0)
        first_stage_forwards += 1.0;
    }
  }
  // The stretch of an asynchronous run holds more microbatches than a step.
  const double scale = step.job.layout.microbatches() / first_stage_forwards;
  for (PassCounts& stage : counts) {
    stage.forward *= scale;
    stage.backward *= scale;
  }
  return counts;
}

void add(AxisCommunication& axis, const Traffic& traffic, double times) {
  axis.total_s += traffic.time.value() * times;
  axis.bytes_sent_per_rank += traffic.sent_per_rank.value() * times;
  axis.messages += traffic.messages * times;
}

// Everything that the costs say without the clock: what is sent, and what of the actions' time is not plain compute.
void fill_from_costs(const PreparedStep& step, Result& result, double& recompute_flops) {
  const double ranks = step.program.rank_count();
  const std::vector<PassCounts> counts = count_passes(step);
  CommunicationResult& sent = result.communication;
  for (std::size_t index = 0; index < step.costs.stages.size(); ++index) {
    const StageCosts& stage = step.costs.stages[index];
    const double share = counts[index].forward / ranks;
    const Seconds tp =
        stage.forward.tp_comm + stage.recompute.tp_comm + stage.input_gradient.tp_comm + stage.weight_gradient.tp_comm;
    const Seconds dp = stage.forward.dp_comm + stage.input_gradient.dp_comm;
    const Seconds offload = stage.forward.offload + stage.input_gradient.offload;
    result.breakdown.dp_comm_s += dp.value() * share;
    result.breakdown.offload_s += offload.value() * share;
    add(sent.dp, stage.dp, share);
    const Seconds cp = stage.forward.cp_comm + stage.recompute.cp_comm + stage.input_gradient.cp_comm;
    result.breakdown.tp_comm_s += tp.value() * share - stage.tp_hidden.value() * counts[index].backward / ranks;
    result.breakdown.cp_comm_s += cp.value() * share;
    const Seconds ep = stage.forward.ep_comm + stage.recompute.ep_comm + stage.input_gradient.ep_comm;
    result.breakdown.ep_comm_s += ep.value() * share;
    result.breakdown.recompute_s += stage.recompute.compute.value() * share;
    add(sent.tp, stage.tp, share);
    add(sent.cp, stage.cp, share);
    add(sent.ep, stage.ep, share);
    recompute_flops += stage.recompute_flops.value() * counts[index].forward;
    if (index < step.costs.boundaries.size()) {
      const BoundaryCosts& boundary = step.costs.boundaries[index];
      const double messages = boundary.bytes.value() > 0 ? 2.0 : 0.0;
      // Both ends are busy with a transfer, one of them sends it.
      const Seconds at_both_ends = (boundary.forward + boundary.backward) * 2.0;
      add(sent.pp, {at_both_ends, boundary.bytes * messages, messages}, share * step.program.slices_per_microbatch);
    }
  }
  const double updates = step.program.asynchronous
                             ? step.job.layout.microbatches() / static_cast<double>(*step.request.accumulation)
                             : 1.0;
  for (const FlushCosts& rank : step.costs.ranks) add(sent.dp, rank.dp, updates / ranks);
}

TrainingResult training_of(const Job& job, double time_s) {
  TrainingResult training;
  const double tokens_per_step = static_cast<double>(job.layout.global_batch_size) * job.training.sequence_length;
  training.steps = std::ceil(*job.training.tokens / tokens_per_step);
  training.days = training.steps * time_s / kSecondsPerDay;
  training.gpu_hours = training.steps * time_s / kSecondsPerHour * job.cluster.devices();
  if (job.training.price_per_gpu_hour) training.cost_usd = training.gpu_hours * *job.training.price_per_gpu_hour;
  return training;
}

SteadyResult steady_of(const PreparedStep& step, const AsynchronousProfile& profile) {
  SteadyResult steady;
  steady.period_s = profile.period_s;
  steady.fill_s = profile.fill_s;
  steady.throughput_samples_per_s = step.job.layout.global_batch_size / profile.step.time_s;
  for (int rank = 0; rank < step.request.pipeline_ranks; ++rank) {
    steady.weight_versions.push_back(step.schedule->weights.versions(step.request, rank));
    steady.staleness.push_back(step.schedule->weights.staleness(step.request, rank));
  }
  return steady;
}

// What the CUDA context, communication buffers and fragmentation take: counted where the stack tells it.
std::string beyond_tensors(const Stack& stack) {
  if (stack.memory_overhead_gib > 0.0) {
    return fmt::format(
        "beyond the tensors stack {} takes {:g} GiB (CUDA context, communication buffers, fragmentation), "
        "which counts for what fits",
        stack.name, stack.memory_overhead_gib);
  }
  return "memory leaves out the CUDA context, communication buffers and fragmentation";
}

std::string words_of(const StepTimeInterval& interval) {
  return fmt::format(
      "the {:.0f} % interval of the step time, ± {:.2g} %, is that of {} models left out of all fits: {}",
      1e2 * interval.level, 1e2 * interval.half_width, interval.models, interval.evidence);
}

void add_warnings(const Job& job, Result& result) {
  result.warnings.insert(result.warnings.end(), job.warnings.begin(), job.warnings.end());
  // Where nodes differ, the rank closest to its own device's limit need not be the fullest.
  const std::vector<RankMemoryResult>& ranks = result.memory.per_pipeline_rank;
  const RankMemoryResult& tightest =
      *std::max_element(ranks.begin(), ranks.end(), [](const RankMemoryResult& a, const RankMemoryResult& b) {
        return a.shown_gib / a.capacity_gib < b.shown_gib / b.capacity_gib;
      });
  if (!result.memory.fits) {
    result.warnings.push_back(fmt::format("does not fit: the fullest rank needs {:.1f} GiB of {:.1f} GiB",
                                          tightest.shown_gib, tightest.capacity_gib));
  } else if (tightest.shown_gib > kNearlyFull * tightest.capacity_gib) {
    result.warnings.push_back(
        fmt::format("within 10 % of the memory limit ({:.1f} of {:.1f} GiB): fragmentation may still exhaust it",
                    tightest.shown_gib, tightest.capacity_gib));
  }
  if (job.layout.ep > 1 && job.layout.tp * job.layout.ep > job.cluster.devices_per_node) {
    result.warnings.push_back(fmt::format("expert parallelism of {} leaves the node of {} devices", job.layout.ep,
                                          job.cluster.devices_per_node));
  }
  if (job.layout.tp > job.cluster.devices_per_node) {
    result.warnings.push_back(fmt::format("tensor parallelism of {} leaves the node of {} devices", job.layout.tp,
                                          job.cluster.devices_per_node));
  }
}

}  // namespace

Forecast forecast(const Job& job, const ReadFile& read_file) {
  Forecast answer;
  answer.step = prepare(job, read_file);
  const PreparedStep& step = answer.step;
  Result& result = answer.result;

  answer.timeline = simulate(step.program, step.times);
  answer.timeline.title = fmt::format("{}, {}", step.job.model.name, step.job.layout.schedule);
  answer.timeline.time_unit = "s";
  answer.timeline.units_per_tick = kSecondsPerTick;

  StepProfile profile;
  std::vector<int> weight_versions(static_cast<std::size_t>(step.program.rank_count()), 1);
  if (step.program.asynchronous) {
    const AsynchronousProfile steady = profile_of_steady_step(step);
    profile = steady.step;
    result.steady = steady_of(step, steady);
    weight_versions = result.steady->weight_versions;
  } else {
    profile = profile_of_flushed_step(answer.timeline);
  }
  double recompute_flops = 0.0;
  fill_from_costs(step, result, recompute_flops);
  fill_from_profile(profile, result);
  fill_iteration(step.job, profile.time_s, recompute_flops, result.iteration);
  result.interval = step_time_interval(facts_of(step.job), profile.time_s, shipped_held_out_errors());
  if (step.job.training.tokens) result.training = training_of(step.job, profile.time_s);

  MemoryForecast memory = forecast_memory(step, answer.timeline, weight_versions);
  result.memory = std::move(memory.result);
  answer.memory = std::move(memory.over_time);
  result.assumptions = step.job.assumptions;
  if (!step.job.profile) result.assumptions.push_back("MFU counts attention in full, not causal-halved");
  if (step.stages.copies() > 1) {
    result.assumptions.push_back(fmt::format(
        "{} copies of the model: twice the weights, gradients and optimizer state, and an all-reduce of the "
        "gradients between the two ranks that hold a stage",
        step.stages.copies()));
  }
  const bool keeps_weights = step.job.layout.gradient_shards() > 1 &&
                             std::any_of(step.stages.passes_in_a_row.begin(), step.stages.passes_in_a_row.end(),
                                         [](int passes) { return passes > 1; });
  if (keeps_weights) {
    result.assumptions.push_back(
        "a stage's weights stay gathered, and its gradients whole, for all the microbatches that run in a row");
  }
  if (result.interval) result.assumptions.push_back(words_of(*result.interval));
  result.assumptions.push_back("one pipeline stands for all replicas: no stragglers");
  result.assumptions.push_back(beyond_tensors(step.job.training.stack));
  if (step.job.cluster.node_devices.size() > 1) {
    result.assumptions.push_back("a pipeline rank runs at the pace of its slowest device, with equal microbatches");
  }
  add_warnings(step.job, result);
  return answer;
}

}  // namespace flopcast
