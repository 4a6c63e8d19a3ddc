#include "sim/schedules/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace flopcast {

namespace {

// A program that updates its weights while the pipeline stays full.
Program without_flush(Program program, WeightPolicy policy, int accumulation) {
  program.asynchronous = true;
  program.weight_policy = policy;
  program.accumulation = accumulation;
  return program;
}

// Microbatches per update: all unless specified.
int asked_accumulation(const ScheduleRequest& request) {
  return request.accumulation.value_or(request.microbatches);
}

}  // namespace

// PipeDream: Harlap 2018, arXiv 1806.03377; SOSP 2019, sections 3.2 and 3.3: 1F1B that never flushes.
//
// Rule: rank r executes min(m, p - 1 - r) forwards, then one forward and one backward in turn indefinitely; a finite
// request drains after its last microbatch. The weights of a stage are updated after every backward.
// Variants: stashing (a backward uses the weights of its own forward, so stage s keeps p - s versions) and
// vertical-sync (every stage uses the version that the first stage had at the microbatch's forward; p versions).
// Replicated stages, 1F1B-RR (section 3.2): microbatch k goes to replica k mod R of a stage with R replicas, forward
// and backward, and a replica takes its microbatches in the order of 1F1B with a warm-up of ceil(n / R) forwards, where
// n is the number of ranks of the later stages. On the first stage that admits NOAM = ceil(ranks / R) microbatches per
// replica. Replicas update together; the time of their gradient reduction is left out.
// Peak in flight: min(m, p - r); with replicas ceil(n / R) + 1 on each.
// Makespan, with the drain: that of 1F1B. The steady period is F + B + 2c (p - 1) / p; at c = 0 no bubble except the
// fill.
// Constraints: one chunk per rank; accumulation, if given, is 1; vertical-sync needs the same number of replicas on
// every stage, because versions count updates.

namespace {

constexpr std::string_view kVerticalSync = "vertical-sync";

std::optional<ScheduleRefusal> refuse_replicas(const ScheduleRequest& request) {
  const std::vector<int>& replicas = request.stage_replicas;
  const auto refusal = [&](const std::string& problem, const std::string& help) {
    return ScheduleRefusal{.problem = fmt::format("replicas {}: {}", fmt::join(replicas, ","), problem), .help = help};
  };
  if (replicas.empty()) return std::nullopt;
  if (replicas.size() != static_cast<std::size_t>(request.pipeline_ranks)) {
    return refusal(fmt::format("{} numbers for {} stages", replicas.size(), request.pipeline_ranks),
                   "give one number per stage");
  }
  std::size_t ranks = 0;
  for (const int count : replicas) {
    if (count < 1) return refusal(fmt::format("{} replicas", count), "at least 1 on every stage");
    ranks += static_cast<std::size_t>(count);
  }
  if (ranks > kMaxStages) return refusal(fmt::format("{} ranks", ranks), fmt::format("at most {} ranks", kMaxStages));
  const int most = *std::max_element(replicas.begin(), replicas.end());
  if (most > request.microbatches) {
    return refusal(
        fmt::format("{} replicas with only {} microbatches leave a rank without work", most, request.microbatches),
        fmt::format("at least {} microbatches", most));
  }
  const bool even = std::all_of(replicas.begin(), replicas.end(), [most](int count) { return count == most; });
  if (request.variant == kVerticalSync && !even) {
    return refusal("vertical-sync compares update counts of stages, which depend on their replicas",
                   "use the same number of replicas on every stage, or pipedream:stashing");
  }
  return std::nullopt;
}

std::optional<ScheduleRefusal> refuse_pipedream(const ScheduleRequest& request) {
  if (request.accumulation.value_or(1) == 1) return refuse_replicas(request);
  return ScheduleRefusal{.problem = fmt::format("pipedream updates the weights after every microbatch, not after {}",
                                                *request.accumulation),
                         .help = "use accumulation 1, or schedule pipedream-2bw, which supports more"};
}

// Warm-up of each stage's replicas: microbatches that a replica takes before its first backward is due, minus one.
std::vector<int> pipedream_warmup(const ScheduleRequest& request) {
  std::vector<int> warmup = shortest_warmup(request.pipeline_ranks);
  const std::vector<int>& replicas = request.stage_replicas;
  int later_ranks = 0;
  for (std::size_t stage = replicas.size(); stage-- > 0;) {
    warmup[stage] = (later_ranks + replicas[stage] - 1) / replicas[stage];
    later_ranks += replicas[stage];
  }
  return warmup;
}

std::vector<Action> order_of_replica(const ScheduleRequest& request, int stage, int replica, int warmup) {
  std::vector<int> own;
  const int step = request.stage_replicas[static_cast<std::size_t>(stage)];
  for (int microbatch = replica; microbatch < request.microbatches; microbatch += step) own.push_back(microbatch);
  std::vector<Action> actions;
  alternate(
      {.passes = own.size(), .warmup = static_cast<std::size_t>(warmup)},
      [&](std::size_t pass) { return forward_action(StageIndex(stage), MicrobatchIndex(own[pass])); },
      [&](std::size_t pass) { return backward_action(StageIndex(stage), MicrobatchIndex(own[pass])); }, actions);
  return actions;
}

Program round_robin(const ScheduleRequest& request) {
  Program program;
  program.schedule = "pipedream";
  program.replicas_of_stage = request.stage_replicas;
  program.chains = {Chain{.first_stage = 0, .last_stage = request.pipeline_ranks - 1}};
  const std::vector<int> warmup = pipedream_warmup(request);
  for (int stage = 0; stage < request.pipeline_ranks; ++stage) {
    program.rank_of_stage.push_back(program.rank_count());
    for (int replica = 0; replica < program.replicas(stage); ++replica) {
      program.ranks.push_back(order_of_replica(request, stage, replica, warmup[static_cast<std::size_t>(stage)]));
    }
  }
  return program;
}

int stage_of_replica(const ScheduleRequest& request, int rank) {
  int stage = 0;
  for (const int replicas : request.stage_replicas) {
    if (rank < replicas) return stage;
    rank -= replicas;
    ++stage;
  }
  return stage + rank;
}

int pipedream_accumulation(const ScheduleRequest& /*request*/) {
  return 1;
}
int pipedream_staleness(const ScheduleRequest& request, int rank) {
  const std::vector<int> warmup = pipedream_warmup(request);
  if (request.variant == kVerticalSync) return warmup.front();
  return warmup[static_cast<std::size_t>(stage_of_replica(request, rank))];
}
int pipedream_versions(const ScheduleRequest& request, int rank) {
  return pipedream_staleness(request, rank) + 1;
}
WeightPolicy pipedream_policy(const ScheduleRequest& request) {
  return request.variant == kVerticalSync ? WeightPolicy::kVerticalSync : WeightPolicy::kStashed;
}

Program generate_pipedream(const ScheduleRequest& request) {
  Program program = request.stage_replicas.empty()
                        ? one_forward_one_backward("pipedream", request, shortest_warmup(request.pipeline_ranks))
                        : round_robin(request);
  return without_flush(std::move(program), pipedream_policy(request), pipedream_accumulation(request));
}

std::optional<Ticks> pipedream_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  if (!request.stage_replicas.empty()) return std::nullopt;
  return one_forward_one_backward_makespan(request, times);
}

}  // namespace

ScheduleInfo pipedream_schedule() {
  ScheduleInfo info;
  info.name = "pipedream";
  info.summary = "asynchronous 1f1b: weights updated after every microbatch, p - s versions stashed";
  info.source = "PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.2";
  info.constraints = "accumulation is 1; vertical-sync: the same number of replicas on every stage";
  info.peak_in_flight = "min(m, p - r)";
  info.makespan = "with the drain: that of 1f1b; steady period F + B + 2c (p - 1) / p";
  info.where_to_use =
      "links or stages too uneven for a flush, memory for p weight versions, a model that tolerates staleness";
  info.asynchronous = true;
  info.uses_stage_replicas = true;
  info.variants = {"stashing", kVerticalSync};
  info.reads = {&ScheduleRequest::accumulation};
  info.refuse = refuse_pipedream;
  info.generate = generate_pipedream;
  info.closed_form_makespan = pipedream_makespan;
  info.weights = {pipedream_accumulation, pipedream_versions, pipedream_staleness, pipedream_policy};
  return info;
}

// PipeDream-2BW: Narayanan 2021, arXiv 2006.09503, section 3.1: 1F1B that never flushes, with two weight versions.
//
// Rule: the order of 1F1B over all microbatches. Gradients of `accumulation` = a microbatches make one update; batch t
// uses the weights of update t - 1 in both directions on every stage, so two versions are enough when a >= p.
// Peak in flight: min(m, p - r).
// Makespan, with the drain: that of 1F1B. The steady period is F + B + 2c (p - 1) / p; at c = 0 no bubble except the
// fill.
// Constraints: one chunk per rank; a >= p, where a is m unless specified.

namespace {

int two_bw_versions(const ScheduleRequest& /*request*/, int /*rank*/) {
  return 2;
}
int two_bw_staleness(const ScheduleRequest& /*request*/, int /*rank*/) {
  return 1;
}

std::optional<ScheduleRefusal> refuse_two_bw(const ScheduleRequest& request) {
  if (asked_accumulation(request) >= request.pipeline_ranks) return std::nullopt;
  return ScheduleRefusal{
      .problem = fmt::format(
          "pipedream-2bw with {} pipeline ranks cannot update the weights after {} microbatch{}: two "
          "weight versions need at least one microbatch per rank",
          request.pipeline_ranks, asked_accumulation(request), asked_accumulation(request) == 1 ? "" : "es"),
      .help = fmt::format("{} >= {}", request.accumulation ? "accumulation" : "microbatches", request.pipeline_ranks)};
}

}  // namespace

ScheduleInfo pipedream_2bw_schedule() {
  ScheduleInfo info;
  info.name = "pipedream-2bw";
  info.summary = "asynchronous 1f1b with gradient accumulation and two weight versions";
  info.source = "PipeDream-2BW, arXiv 2006.09503, section 3.1";
  info.constraints = "accumulation >= p (all microbatches unless given)";
  info.peak_in_flight = "min(m, p - r)";
  info.makespan = "with the drain: that of 1f1b; steady period F + B + 2c (p - 1) / p";
  info.where_to_use = "large models without a flush: two weight versions, a staleness of one update";
  info.asynchronous = true;
  info.reads = {&ScheduleRequest::accumulation};
  info.refuse = refuse_two_bw;
  info.generate = [](const ScheduleRequest& request) {
    return without_flush(one_forward_one_backward("pipedream-2bw", request, shortest_warmup(request.pipeline_ranks)),
                         WeightPolicy::kDoubleBuffered, asked_accumulation(request));
  };
  info.closed_form_makespan = one_forward_one_backward_makespan;
  info.weights = {asked_accumulation, two_bw_versions, two_bw_staleness,
                  [](const ScheduleRequest& /*request*/) { return WeightPolicy::kDoubleBuffered; }};
  return info;
}

// PipeMare: Yang 2021, arXiv 1910.05124, sections 2 and 3: a pipeline that neither flushes nor stashes weights.
//
// Rule: every rank alternates forwards and backwards as soon as it can: rank r executes min(m, 2 (p - 1 - r)) forwards,
// then one forward and one backward in turn. Gradients of `accumulation` = a microbatches make one update. Forward and
// backward each use the newest weights, so the two passes of a microbatch use different ones.
// Delay of the forward's weights, averaged over the microbatches of an update: (2 (p - 1 - r) + 1) / a updates (the
// paper's (2 (P - i) + 1) / N with i from 1, the microbatch's own update included). The backward's weights have no
// delay.
// Left out: the paper's remedies for the discrepancy (learning rate rescheduling, discrepancy correction, synchronous
// warm-up epochs), which change what is learned but not when actions run.
// Peak in flight: min(m, 2 (p - 1 - r) + 1).
// Makespan, with the drain: that of eager 1F1B, (m + p - 1)(F + B) + 2 (p - 1) c while 2c <= F + B; the steady period
// is then F + B.
// Constraints: one chunk per rank; accumulation is m unless specified.

namespace {

int pipemare_versions(const ScheduleRequest& /*request*/, int /*rank*/) {
  return 1;
}
// Maximum over the microbatches of the updates between a microbatch's two passes.
int pipemare_staleness(const ScheduleRequest& request, int rank) {
  const int backwards_between = 2 * (request.pipeline_ranks - 1 - rank);
  const int every = asked_accumulation(request);
  return (backwards_between + every - 1) / every;
}

std::optional<ScheduleRefusal> refuse_pipemare(const ScheduleRequest& request) {
  if (asked_accumulation(request) >= 1) return std::nullopt;
  return ScheduleRefusal{
      .problem = fmt::format("pipemare cannot update the weights after {} microbatches", asked_accumulation(request)),
      .help = "accumulation >= 1"};
}

}  // namespace

ScheduleInfo pipemare_schedule() {
  ScheduleInfo info;
  info.name = "pipemare";
  info.summary = "asynchronous and stash-free: forward and backward each use the newest weights";
  info.source = "PipeMare, arXiv 1910.05124, section 2";
  info.constraints = "accumulation >= 1 (all microbatches unless given)";
  info.peak_in_flight = "min(m, 2 (p - 1 - r) + 1)";
  info.makespan = "with the drain: that of eager-1f1b; steady period F + B while 2c <= F + B";
  info.where_to_use =
      "no memory for a second copy of the weights, and training that tolerates different weights in the two passes";
  info.asynchronous = true;
  info.reads = {&ScheduleRequest::accumulation};
  info.refuse = refuse_pipemare;
  info.generate = [](const ScheduleRequest& request) {
    return without_flush(one_forward_one_backward("pipemare", request, eager_warmup(request.pipeline_ranks)),
                         WeightPolicy::kNewest, asked_accumulation(request));
  };
  info.closed_form_makespan = eager_1f1b_makespan;
  info.weights = {asked_accumulation, pipemare_versions, pipemare_staleness,
                  [](const ScheduleRequest& /*request*/) { return WeightPolicy::kNewest; }};
  return info;
}

}  // namespace flopcast
