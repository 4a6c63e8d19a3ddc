#include "sim/forecast/forecast.hpp"
#include "sim/forecast/prepare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/workload/transformer.hpp"
#include "sim/forecast/evaluate.hpp"
#include "sim/forecast/interval.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

constexpr double kSecondsPerHour = 3'600.0;
constexpr double kNearlyFull = 0.9;
constexpr std::size_t kMostExchangeSpans = 100'000;  // more would make files larger than viewers can open

// Number of times a step runs each pass of a stage; overlap within a full B counts only if B is used.
struct PassCounts {
  double forward = 0.0;
  double backward = 0.0;
};

// Calls visit(actions of a rank, index) for each action of the step, including those of blocks that its program omits.
template <class Visit>
void for_each_action(const PreparedStep& step, const Visit& visit) {
  const auto visit_all = [&](const std::vector<Action>& actions, std::size_t from, std::size_t to) {
    for (std::size_t index = from; index < to; ++index) visit(actions, index);
  };
  for (std::size_t rank = 0; rank < step.program.ranks.size(); ++rank) {
    const std::vector<Action>& actions = step.program.ranks[rank];
    if (!step.repetition) {
      visit_all(actions, 0, actions.size());
      continue;
    }
    const OrderPeriod& order = step.repetition->order;
    const std::size_t cut = order.cut[rank];
    visit_all(actions, 0, cut);
    for (int block = 0; block < step.repetition->left_out / order.microbatches; ++block) {
      visit_all(actions, cut - order.length[rank], cut);
    }
    visit_all(actions, cut, actions.size());
  }
}

std::vector<PassCounts> count_passes(const PreparedStep& step) {
  std::vector<PassCounts> counts(static_cast<std::size_t>(step.program.stage_count()));
  double first_stage_forwards = 0.0;
  for_each_action(step, [&](const std::vector<Action>& actions, std::size_t index) {
    const Action& action = actions[index];
    PassCounts& stage = counts[action.stage];
    if (action.kind == ActionKind::kForward) stage.forward += 1.0;
    if (action.kind == ActionKind::kBackward) stage.backward += 1.0;
    if (action.kind == ActionKind::kForward && step.stages.model_stage(action.stage) == 0) first_stage_forwards += 1.0;
  });
  // The stretch of an asynchronous run holds more microbatches than a step.
  const double scale = step.job.layout.microbatches() / first_stage_forwards;
  for (PassCounts& stage : counts) {
    stage.forward *= scale;
    stage.backward *= scale;
  }
  return counts;
}

void add_traffic(AxisCommunication& axis, const Traffic& traffic, double times) {
  axis.total_s += traffic.time.value() * times;
  axis.bytes_sent_per_rank += traffic.sent_per_rank.value() * times;
  axis.messages += traffic.messages * times;
}

// Time of the ranks' exchanges that overlapped pairs hide, in seconds summed over ranks.
double hidden_by_pairs(const PreparedStep& step) {
  double hidden = 0.0;
  for_each_action(step, [&](const std::vector<Action>& actions, std::size_t index) {
    if (!actions[index].overlaps_next || index + 1 == actions.size()) return;
    const StageCosts& first = step.costs.stages[actions[index].stage];
    const StageCosts& second = step.costs.stages[actions[index + 1].stage];
    hidden += std::min(first.pair_hidden, second.pair_hidden).value();
  });
  return hidden;
}

// Everything that the costs determine without a simulation: the traffic, and the part of the actions' time that is not
// plain compute.
struct InsidePasses {
  Breakdown spent;               // time of passes on recomputation, communication and the host, means over ranks
  CommunicationResult sent;      // all traffic, hidden or not
  double recompute_flops = 0.0;  // per pipeline
};

InsidePasses inside_passes(const PreparedStep& step) {
  const double ranks = step.program.rank_count();
  const std::vector<PassCounts> counts = count_passes(step);
  InsidePasses inside;
  Breakdown& spent = inside.spent;
  CommunicationResult& sent = inside.sent;
  for (std::size_t index = 0; index < step.costs.stages.size(); ++index) {
    const StageCosts& stage = step.costs.stages[index];
    const double share = counts[index].forward / ranks;
    const Seconds offload = stage.forward.offload + stage.input_gradient.offload;
    spent.recompute_s += stage.recompute.compute.value() * share;
    for (const Axis axis : kAxes) {
      const Seconds exposed = stage.forward.comm[axis] + stage.recompute.comm[axis] + stage.input_gradient.comm[axis] +
                              stage.weight_gradient.comm[axis];
      const double hidden = axis == Axis::kTensor ? stage.tp_hidden.value() : 0.0;
      spent.*communication_term(axis).spent += exposed.value() * share - hidden * counts[index].backward / ranks;
      add_traffic(sent[axis], stage.sent[axis], share);
    }
    spent.offload_s += offload.value() * share;
    inside.recompute_flops += stage.recompute_flops.value() * counts[index].forward;
    if (index < step.costs.boundaries.size()) {
      const BoundaryCosts& boundary = step.costs.boundaries[index];
      const double messages = boundary.bytes.value() > 0 ? 2.0 : 0.0;
      // Both ends are busy with a transfer, but only one sends it.
      const Seconds at_both_ends = (boundary.forward + boundary.backward) * 2.0;
      add_traffic(sent.pp, {at_both_ends, boundary.bytes * messages, messages},
                  share * step.program.slices_per_microbatch);
    }
  }
  spent.ep_comm_s -= hidden_by_pairs(step) / ranks;
  const double updates = step.program.asynchronous
                             ? step.job.layout.microbatches() / static_cast<double>(*step.request.accumulation)
                             : 1.0;
  for (const FlushCosts& rank : step.costs.ranks) add_traffic(sent.dp, rank.dp, updates / ranks);
  return inside;
}

Breakdown breakdown_of(const StepProfile& profile, const Breakdown& inside) {
  Breakdown breakdown = inside;
  breakdown.pp_comm_s = profile.exposed_pipeline_s;
  breakdown.dp_comm_s += profile.exposed_data_parallel_s;
  breakdown.optimizer_s = profile.optimizer_s;
  breakdown.bubble_s = profile.bubble_total_s();
  breakdown.compute_s = profile.actions_s - inside.recompute_s - inside.tp_comm_s - inside.cp_comm_s -
                        inside.ep_comm_s - (inside.dp_comm_s + inside.offload_s);
  return breakdown;
}

BubbleResult bubble_of(const StepProfile& profile) {
  const auto caused_by = [&profile](BubbleCause cause) { return profile.bubble_s[static_cast<std::size_t>(cause)]; };
  BubbleResult bubble;
  bubble.fraction = profile.bubble_total_s() / profile.time_s;
  bubble.ratio = profile.time_s / profile.busiest_rank_s - 1.0;
  bubble.span_s = profile.span_s;
  bubble.warmup_s = caused_by(BubbleCause::kWarmup);
  bubble.cooldown_s = caused_by(BubbleCause::kCooldown);
  bubble.imbalance_s = caused_by(BubbleCause::kImbalance);
  bubble.dependency_s = caused_by(BubbleCause::kDependency);
  bubble.per_pipeline_rank = profile.bubble_share;
  return bubble;
}

CommunicationResult communication_of(const CommunicationResult& on_links, const Breakdown& exposed, double time_s) {
  CommunicationResult sent = on_links;
  double total_s = 0.0;
  double exposed_s = 0.0;
  for (const Axis axis : kResultAxes) {
    sent[axis].exposed_s = exposed.*communication_term(axis).spent;
    // On shared links messages take longer than their price; the exposed time was in progress.
    sent[axis].total_s = std::max(sent[axis].total_s, sent[axis].exposed_s);
    total_s += sent[axis].total_s;
    exposed_s += sent[axis].exposed_s;
  }
  sent.fraction = total_s / time_s;
  sent.exposed_fraction = exposed_s / time_s;
  return sent;
}

IterationResult iteration_of(const Job& job, double time_s, double recompute_flops_per_pipeline) {
  constexpr double kTera = 1e12;
  const double gpus = job.cluster.devices();
  const double samples = job.layout.global_batch_size;
  const double model_flops = model_flops_per_step(job).value();
  const double pipelines = static_cast<double>(job.layout.dp) * job.layout.tp * job.layout.cp;
  const double hardware_flops = model_flops + recompute_flops_per_pipeline * pipelines;
  IterationResult iteration;
  iteration.time_s = time_s;
  iteration.samples_per_s = samples / time_s;
  iteration.tokens_per_s = iteration.samples_per_s * sequences_of(job.training, 1) * job.training.sequence_length;
  iteration.tokens_per_s_per_gpu = iteration.tokens_per_s / gpus;
  iteration.model_tflops_per_gpu = model_flops / time_s / gpus / kTera;
  iteration.hardware_tflops_per_gpu = hardware_flops / time_s / gpus / kTera;
  const double peak = mean_peak(job).value() / kTera;
  iteration.mfu = iteration.model_tflops_per_gpu / peak;
  iteration.mfu_causal = model_flops_per_step(job, AttentionFlops::kCausal).value() / time_s / gpus / kTera / peak;
  iteration.hfu = iteration.hardware_tflops_per_gpu / peak;
  return iteration;
}

// Parts of a result that follow from the step's time: iteration, breakdown, communication and bubble.
Result result_of_profile(const Job& job, const StepProfile& profile, const InsidePasses& inside) {
  Result result;
  result.iteration = iteration_of(job, profile.time_s, inside.recompute_flops);
  if (!job.profile) {
    const ParameterCounts counts = count_parameters(job.model);
    result.model = {static_cast<std::uint64_t>(counts.total), static_cast<std::uint64_t>(counts.active)};
  }
  result.breakdown = breakdown_of(profile, inside.spent);
  result.communication = communication_of(inside.sent, result.breakdown, profile.time_s);
  result.bubble = bubble_of(profile);
  return result;
}

TrainingResult training_of(const Job& job, double time_s) {
  TrainingResult training;
  const double tokens_per_step =
      static_cast<double>(sequences_of(job.training, job.layout.global_batch_size)) * job.training.sequence_length;
  training.steps = std::ceil(*job.training.tokens / tokens_per_step);
  training.days = training.steps * time_s / kSecondsADay;
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

// Memory of the CUDA context, communication buffers and fragmentation, which counts if the stack specifies it.
std::string beyond_tensors(const Stack& stack) {
  if (stack.memory_overhead_gib > 0.0) {
    return fmt::format(
        "beyond the tensors, stack {} takes {:g} GiB (CUDA context, communication buffers, fragmentation), "
        "which counts towards the memory limit",
        stack.name, stack.memory_overhead_gib);
  }
  return "memory excludes the CUDA context, communication buffers and fragmentation";
}

std::string describe(const StepTimeInterval& interval) {
  return fmt::format("nine of ten measured steps are expected between {:.4g} and {:.4g} s: {}", interval.low_s,
                     interval.high_s, interval.evidence);
}

bool shares_links(const PreparedStep& step) {
  return step.job.cluster.shares_links();
}

std::vector<std::string> assumptions_of(const PreparedStep& step, const std::optional<StepTimeInterval>& interval) {
  std::vector<std::string> assumptions = step.job.assumptions;
  if (!step.job.profile) assumptions.emplace_back("MFU counts attention in full, not causal-halved");
  if (step.stages.copies() > 1) {
    assumptions.push_back(fmt::format(
        "{} copies of the model: twice the weights, gradients and optimizer state, and an all-reduce of the "
        "gradients between the two ranks that hold a stage",
        step.stages.copies()));
  }
  const bool keeps_weights = step.job.layout.gradient_shards() > 1 &&
                             std::any_of(step.stages.passes_in_a_row.begin(), step.stages.passes_in_a_row.end(),
                                         [](int passes) { return passes > 1; });
  if (keeps_weights) {
    assumptions.emplace_back(
        "a stage's weights stay gathered, and its gradients unsharded, for all microbatches that run in a row");
  }
  if (const std::optional<Experts>& experts = step.job.model.experts; experts && experts->imbalance > 0.0) {
    const int ranks = step.job.layout.ep;
    constexpr double kOneOfTwenty = 0.95;
    assumptions.push_back(fmt::format(
        "of {} expert-parallel ranks, the fullest has {:.3g} times its share in the median layer and {:.3g} "
        "times in one of "
        "twenty",
        ranks, experts->fullest_rank(ranks), experts->fullest_rank(ranks, kOneOfTwenty)));
  }
  if (interval) assumptions.push_back(describe(*interval));
  assumptions.emplace_back(shares_links(step) ? "no stragglers"
                                              : "one pipeline represents all replicas: no stragglers");
  if (shares_links(step)) {
    assumptions.emplace_back(
        "links are shared max-min fairly, as in a tuned fabric: no congestion control, packet loss or incast collapse");
  }
  assumptions.push_back(beyond_tensors(step.job.training.stack));
  if (step.job.cluster.node_devices.size() > 1) {
    assumptions.emplace_back("a pipeline rank runs at the pace of its slowest device, with equal microbatches");
  }
  return assumptions;
}

std::vector<std::string> warnings_of(const Job& job, const MemoryResult& memory) {
  std::vector<std::string> warnings = job.warnings;
  // If nodes differ, the rank closest to its device's limit need not be the fullest.
  const std::vector<RankMemoryResult>& ranks = memory.per_pipeline_rank;
  const RankMemoryResult& tightest =
      *std::max_element(ranks.begin(), ranks.end(), [](const RankMemoryResult& a, const RankMemoryResult& b) {
        return a.shown_gib / a.capacity_gib < b.shown_gib / b.capacity_gib;
      });
  if (!memory.fits) {
    warnings.push_back(fmt::format("does not fit: the fullest rank needs {:.1f} GiB but its device has {:.1f} GiB",
                                   tightest.shown_gib, tightest.capacity_gib));
  } else if (tightest.shown_gib > kNearlyFull * tightest.capacity_gib) {
    warnings.push_back(
        fmt::format("within 10 % of the memory limit ({:.1f} of {:.1f} GiB): fragmentation may exhaust it",
                    tightest.shown_gib, tightest.capacity_gib));
  }
  if (job.layout.ep > 1 && job.layout.expert_tensor_ranks() * job.layout.ep > job.cluster.devices_per_node) {
    warnings.push_back(fmt::format("expert parallelism of {} spans more than one node of {} devices", job.layout.ep,
                                   job.cluster.devices_per_node));
  }
  if (job.layout.tp > job.cluster.devices_per_node) {
    warnings.push_back(fmt::format("tensor parallelism of {} spans more than one node of {} devices", job.layout.tp,
                                   job.cluster.devices_per_node));
  }
  return warnings;
}

void set_title(const PreparedStep& step, Timeline& timeline) {
  timeline.title = fmt::format("{}, {}", step.job.model.name, step.job.layout.schedule);
  timeline.time_unit = "s";
  timeline.units_per_tick = kSecondsPerTick;
}

// The time that messages inside passes wait for each other is communication, not computation.
void take_network_step(NetworkStep network, InsidePasses& inside, Forecast& answer) {
  answer.links = std::move(network.links);
  answer.loads = std::move(network.loads);
  answer.messages = std::move(network.messages);
  answer.result.network = std::move(network.result);
  for (const Axis axis : kAxes) {
    if (axis != Axis::kPipeline) inside.spent.*communication_term(axis).spent += network.inside_passes[axis];
  }
}

}  // namespace

Result result_of_timeline(const Job& job, const Timeline& step) {
  return result_of_profile(job, profile_of_flushed_step(step), InsidePasses{});
}

namespace {

// From the published runs, or from your own if constants were fitted to them.
std::optional<StepTimeInterval> interval_of(const PreparedStep& step, const Result& result, const ReadFile& read_file) {
  const Job& job = step.job;
  const double time_s = result.iteration.time_s;
  const double exposed = result.communication.exposed_fraction;
  if (!job.training.fitted) return shipped_interval_model().interval(facts_of(job, exposed), time_s);
  const RunFit& fit = *job.training.fitted;
  const StepTimeOf time_of = [&read_file](const Job& moved) { return step_time(moved, read_file); };
  return interval_from_user_runs(job, fit, run_sensitivities(job, fit.constants, time_s, time_of), exposed, time_s);
}

// True if the layout sends anything over links that a profile covers.
bool sends_over(const PreparedStep& step, const std::vector<GroupCurve>& curves) {
  const Job& job = step.job;
  const RankGrid grid(job.layout);
  const auto measured = [&curves](bool between) {
    return std::any_of(curves.begin(), curves.end(),
                       [between](const GroupCurve& curve) { return (curve.nodes > 1) == between; });
  };
  for (const Axis axis : kResultAxes) {
    if (axis == Axis::kExpert) continue;  // its ranks are those of the replicas
    const GroupPlacement placement = grid.placement(axis, job.cluster);
    if (placement.ranks < 2) continue;
    if (placement.crosses_nodes() && measured(true)) return true;
    if (placement.ranks_per_node > 1 && measured(false)) return true;
  }
  return false;
}

void reject_unused_profile(const PreparedStep& step) {
  const Job& job = step.job;
  if (job.profile_of_messages.empty() || sends_over(step, job.cluster.curves)) return;
  std::vector<std::string> curves;
  for (const GroupCurve& curve : job.cluster.curves) {
    curves.push_back(fmt::format("{} of {} ranks{}", curve.name(), curve.ranks,
                                 curve.nodes > 1 ? fmt::format(" on {} nodes", curve.nodes) : ""));
  }
  throw ConfigError({"training.profile",
                     fmt::format("profile {} is not used: it covers {}, and this layout sends nothing over such "
                                 "links",
                                 job.profile_of_messages, fmt::join(curves, ", ")),
                     job.origins.where("training.profile"),
                     "remove the profile, or measure the links that the layout uses"});
}

}  // namespace

double step_time(const Job& job, const ReadFile& read_file) {
  return evaluate(prepare_periodic(job, read_file), Detail::kTime).time_s;
}

namespace {

Forecast answer_of(PreparedStep prepared, Detail detail, const ReadFile& read_file) {
  Forecast answer;
  answer.step = std::move(prepared);
  const PreparedStep& step = answer.step;
  reject_unused_profile(step);
  InsidePasses inside = inside_passes(step);
  Evaluation evaluation = evaluate(step, detail);
  StepHistory& history = *evaluation.history;
  answer.timeline = std::move(history.timeline);
  set_title(step, answer.timeline);
  answer.memory = std::move(history.memory);
  if (history.network) take_network_step(std::move(*history.network), inside, answer);

  Result& result = answer.result;
  std::optional<NetworkResult> network = std::move(result.network);
  result = result_of_profile(step.job, history.profile, inside);
  result.network = std::move(network);
  result.interval = interval_of(step, result, read_file);
  result.memory = std::move(evaluation.memory);
  if (step.job.training.tokens) result.training = training_of(step.job, evaluation.time_s);
  if (history.steady) result.steady = steady_of(step, *history.steady);
  result.assumptions = assumptions_of(step, result.interval);
  if (history.exchanges > kMostExchangeSpans) {
    result.assumptions.push_back(fmt::format("the timeline omits {} dispatches and combines", history.exchanges));
  }
  result.warnings = warnings_of(step.job, result.memory);
  return answer;
}

}  // namespace

Forecast forecast(const Job& job, const ReadFile& read_file) {
  Forecast answer = answer_of(prepare(job, read_file), Detail::kTimeline, read_file);
  // The figures depend on the passes alone.
  add_exchange_spans(answer.step.costs.stages, kMostExchangeSpans, answer.timeline);
  return answer;
}

Forecast forecast_figures(const Job& job, const ReadFile& read_file) {
  Forecast answer = answer_of(prepare_periodic(job, read_file), Detail::kProfile, read_file);
  answer.timeline = Timeline();
  answer.memory.clear();
  answer.messages.clear();
  return answer;
}

}  // namespace flopcast
