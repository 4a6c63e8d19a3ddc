// PipeDream: Harlap 2018, arXiv 1806.03377; SOSP 2019, sections 3.2 and 3.3: 1F1B that never flushes.
//
// Rule: rank r executes min(m, p - 1 - r) forwards, then one forward and one backward in turn without end; a finite
// request drains after its last microbatch. The weights of a stage are updated after every backward.
// Variants: stashing (a backward uses the weights of its own forward, so stage s keeps p - s versions) and
// vertical-sync (every stage uses the version that the first stage had at the microbatch's forward; p versions).
// Replicated stages, 1F1B-RR (section 3.2): microbatch k goes to replica k mod R of a stage with R of them, forward and
// backward, and a replica takes its own microbatches in the order of 1F1B with a warm-up of ceil(n / R) forwards, n
// being the ranks of the later stages. On the first stage that admits NOAM = ceil(ranks / R) microbatches a replica.
// Replicas update together; the time of their gradient reduction is left out.
// Peak in flight: min(m, p - r); with replicas ceil(n / R) + 1 on each.
// Makespan, with the drain: that of 1F1B. The steady period is F + B + 2c (p - 1) / p; at c = 0 no bubble but the fill.
// Constraints: one chunk per rank; accumulation, if given, is 1; vertical-sync needs equally many replicas everywhere,
// because versions count updates.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

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
                   "one number a stage");
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
        fmt::format("{} replicas and only {} microbatches leave a rank without work", most, request.microbatches),
        fmt::format("at least {} microbatches", most));
  }
  const bool even = std::all_of(replicas.begin(), replicas.end(), [most](int count) { return count == most; });
  if (request.variant == kVerticalSync && !even) {
    return refusal("vertical sync compares the updates of stages, which replicas make differently many",
                   "equally many replicas on every stage, or pipedream:stashing");
  }
  return std::nullopt;
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (request.accumulation.value_or(1) == 1) return refuse_replicas(request);
  return ScheduleRefusal{.problem = fmt::format("pipedream updates the weights after every microbatch, not after {}",
                                                *request.accumulation),
                         .help = "accumulation 1, or schedule pipedream-2bw, which accumulates"};
}

// Microbatches that each replica of a stage takes in before its first backward is due, less one.
std::vector<int> warmup_of(const ScheduleRequest& request) {
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
  const std::size_t ahead = std::min(static_cast<std::size_t>(warmup), own.size());
  std::vector<Action> actions;
  actions.reserve(2 * own.size());
  for (std::size_t index = 0; index < own.size() + ahead; ++index) {
    if (index < own.size()) actions.push_back(forward_action(stage, own[index]));
    if (index >= ahead) actions.push_back(backward_action(stage, own[index - ahead]));
  }
  return actions;
}

Program round_robin(const ScheduleRequest& request) {
  Program program;
  program.schedule = "pipedream";
  program.replicas_of_stage = request.stage_replicas;
  program.chains = {Chain{.first_stage = 0, .last_stage = request.pipeline_ranks - 1}};
  const std::vector<int> warmup = warmup_of(request);
  for (int stage = 0; stage < request.pipeline_ranks; ++stage) {
    program.rank_of_stage.push_back(program.rank_count());
    for (int replica = 0; replica < program.replicas(stage); ++replica) {
      program.ranks.push_back(order_of_replica(request, stage, replica, warmup[static_cast<std::size_t>(stage)]));
    }
  }
  return program;
}

Program generate(const ScheduleRequest& request) {
  Program program = request.stage_replicas.empty()
                        ? one_forward_one_backward("pipedream", request, shortest_warmup(request.pipeline_ranks))
                        : round_robin(request);
  program.asynchronous = true;
  return program;
}

int stage_of(const ScheduleRequest& request, int rank) {
  int stage = 0;
  for (const int replicas : request.stage_replicas) {
    if (rank < replicas) return stage;
    rank -= replicas;
    ++stage;
  }
  return stage + rank;
}

int accumulation(const ScheduleRequest& /*request*/) {
  return 1;
}
int staleness(const ScheduleRequest& request, int rank) {
  const std::vector<int> warmup = warmup_of(request);
  if (request.variant == kVerticalSync) return warmup.front();
  return warmup[static_cast<std::size_t>(stage_of(request, rank))];
}
int versions(const ScheduleRequest& request, int rank) {
  return staleness(request, rank) + 1;
}
WeightPolicy policy(const ScheduleRequest& request) {
  return request.variant == kVerticalSync ? WeightPolicy::kVerticalSync : WeightPolicy::kStashed;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  if (!request.stage_replicas.empty()) return std::nullopt;
  return one_forward_one_backward_makespan(request, times);
}

}  // namespace

ScheduleInfo pipedream_schedule() {
  ScheduleInfo info;
  info.name = "pipedream";
  info.summary = "asynchronous 1f1b: weights updated after every microbatch, p - s versions stashed";
  info.source = "PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.2";
  info.constraints = "accumulation is 1; vertical-sync: as many replicas on every stage";
  info.peak_in_flight = "min(m, p - r)";
  info.makespan = "with the drain: that of 1f1b; steady period F + B + 2c (p - 1) / p";
  info.where_to_use =
      "links or stages too uneven for a flush, memory for p weight versions, a model that bears staleness";
  info.asynchronous = true;
  info.uses_stage_replicas = true;
  info.variants = {"stashing", kVerticalSync};
  info.reads = {&ScheduleRequest::accumulation};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  info.weights = {accumulation, versions, staleness, policy};
  return info;
}

}  // namespace flopcast
