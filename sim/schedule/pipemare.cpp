// PipeMare: Yang 2021, arXiv 1910.05124, sections 2 and 3: a pipeline that neither flushes nor stashes weights.
//
// Rule: every rank alternates forwards and backwards as soon as it can: rank r executes min(m, 2 (p - 1 - r)) forwards,
// then one forward and one backward in turn. Gradients of `accumulation` = a microbatches make one update. Forward and
// backward each use the newest weights, so the two passes of a microbatch use different ones.
// Delay of the forward's weights, on average over the microbatches of an update: (2 (p - 1 - r) + 1) / a updates (the
// paper's (2 (P - i) + 1) / N with i from 1, the microbatch's own update included). The backward's: none.
// Left out: the paper's remedies for the discrepancy (learning rate rescheduling, discrepancy correction, synchronous
// warm-up epochs), which change what is learned, not when anything runs.
// Peak in flight: min(m, 2 (p - 1 - r) + 1).
// Makespan, with the drain: that of eager 1F1B, (m + p - 1)(F + B) + 2 (p - 1) c while 2c <= F + B; the steady period
// is then F + B.
// Constraints: one chunk per rank; accumulation is m unless given.

#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

int accumulation(const ScheduleRequest& request) {
  return request.accumulation.value_or(request.microbatches);
}
int versions(const ScheduleRequest& /*request*/, int /*rank*/) {
  return 1;
}
// Of the microbatch with the most updates between its two passes.
int staleness(const ScheduleRequest& request, int rank) {
  const int backwards_between = 2 * (request.pipeline_ranks - 1 - rank);
  const int every = accumulation(request);
  return (backwards_between + every - 1) / every;
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (accumulation(request) >= 1) return std::nullopt;
  return ScheduleRefusal{
      .problem = fmt::format("pipemare cannot update the weights after {} microbatches", accumulation(request)),
      .help = "accumulation >= 1"};
}

Program generate(const ScheduleRequest& request) {
  std::vector<int> warmup = shortest_warmup(request.pipeline_ranks);
  for (int& forwards : warmup) forwards *= 2;
  Program program = one_forward_one_backward("pipemare", request, warmup);
  program.asynchronous = true;
  return program;
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
  info.where_to_use = "no memory for a second copy of the weights, and training tuned for differing passes";
  info.asynchronous = true;
  info.reads = {&ScheduleRequest::accumulation};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = eager_1f1b_makespan;
  info.weights = {accumulation, versions, staleness,
                  [](const ScheduleRequest& /*request*/) { return WeightPolicy::kNewest; }};
  return info;
}

}  // namespace flopcast
