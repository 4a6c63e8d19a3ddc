// PipeDream-2BW: Narayanan 2021, arXiv 2006.09503, section 3.1: 1F1B that never flushes, two weight versions.
//
// Rule: the order of 1F1B over all microbatches. Gradients of `accumulation` = a microbatches make one update; batch t
// uses the weights of update t - 1 in both directions on every stage, so two versions are enough when a >= p.
// Peak in flight: min(m, p - r).
// Makespan, with the drain: that of 1F1B. The steady period is F + B + 2c (p - 1) / p; at c = 0 no bubble but the fill.
// Constraints: one chunk per rank; a >= p, where a is m unless given.

#include <fmt/format.h>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

int accumulation(const ScheduleRequest& request) {
  return request.accumulation.value_or(request.microbatches);
}
int versions(const ScheduleRequest& /*request*/, int /*rank*/) {
  return 2;
}
int staleness(const ScheduleRequest& /*request*/, int /*rank*/) {
  return 1;
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (accumulation(request) >= request.pipeline_ranks) return std::nullopt;
  return ScheduleRefusal{
      .problem =
          fmt::format("pipedream-2bw with {} pipeline ranks cannot update the weights after {} microbatch{}: two "
                      "weight versions need at least one microbatch per rank",
                      request.pipeline_ranks, accumulation(request), accumulation(request) == 1 ? "" : "es"),
      .help = fmt::format("{} >= {}", request.accumulation ? "accumulation" : "microbatches", request.pipeline_ranks)};
}

Program generate(const ScheduleRequest& request) {
  Program program = one_forward_one_backward("pipedream-2bw", request, shortest_warmup(request.pipeline_ranks));
  program.asynchronous = true;
  return program;
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
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = one_forward_one_backward_makespan;
  info.weights = {accumulation, versions, staleness,
                  [](const ScheduleRequest& /*request*/) { return WeightPolicy::kDoubleBuffered; }};
  return info;
}

}  // namespace flopcast
