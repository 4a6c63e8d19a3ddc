// PipeDream: Harlap 2018, arXiv 1806.03377; SOSP 2019, section 3.2: 1F1B that never flushes.
//
// Rule: rank r executes min(m, p - 1 - r) forwards, then one forward and one backward in turn without end; a finite
// request drains after its last microbatch. The weights of a stage are updated after every backward, and a backward
// uses the weights of its own forward (weight stashing), so stage s keeps p - s versions.
// Peak in flight: min(m, p - r).
// Makespan, with the drain: that of 1F1B. The steady period is F + B + 2c (p - 1) / p; at c = 0 no bubble but the fill.
// Constraints: one chunk per rank; accumulation, if given, is 1.

#include <fmt/format.h>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (request.accumulation.value_or(1) == 1) return std::nullopt;
  return ScheduleRefusal{.problem = fmt::format("pipedream updates the weights after every microbatch, not after {}",
                                                *request.accumulation),
                         .help = "accumulation 1, or schedule pipedream-2bw, which accumulates"};
}

Program generate(const ScheduleRequest& request) {
  Program program = one_forward_one_backward("pipedream", request, shortest_warmup(request.pipeline_ranks));
  program.asynchronous = true;
  return program;
}

int accumulation(const ScheduleRequest& /*request*/) {
  return 1;
}
int versions(const ScheduleRequest& request, int rank) {
  return request.pipeline_ranks - rank;
}
int staleness(const ScheduleRequest& request, int rank) {
  return request.pipeline_ranks - 1 - rank;
}

}  // namespace

ScheduleInfo pipedream_schedule() {
  ScheduleInfo info;
  info.name = "pipedream";
  info.summary = "asynchronous 1f1b: weights updated after every microbatch, p - s versions stashed";
  info.source = "PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.2";
  info.constraints = "accumulation is 1";
  info.peak_in_flight = "min(m, p - r)";
  info.makespan = "with the drain: that of 1f1b; steady period F + B + 2c (p - 1) / p";
  info.asynchronous = true;
  info.reads = {&ScheduleRequest::accumulation};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = one_forward_one_backward_makespan;
  info.weights = {accumulation, versions, staleness, WeightPolicy::kStashed};
  return info;
}

}  // namespace flopcast
