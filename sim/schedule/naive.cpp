// Naive model parallelism: one microbatch at a time through all ranks and back. The baseline of GPipe (Huang 2018,
// arXiv 1811.06965, figure 2b) and what moving layers to devices by hand amounts to.
//
// Rule: every rank executes F_k, B_k for k = 0 .. m-1.
// Peak in flight: 1 on every rank.
// Makespan: m [p (F + B) + 2 (p - 1) c]; bubble_fraction (p - 1) / p at c = 0, so one half on two ranks.
// Constraints: one chunk per rank.

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  const std::vector<int> no_warmup(static_cast<std::size_t>(request.pipeline_ranks), 0);
  return one_forward_one_backward("naive", request, no_warmup);
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  return request.microbatches * (ranks * (times.forward + times.backward) + 2 * (ranks - 1) * times.latency);
}

}  // namespace

ScheduleInfo naive_schedule() {
  ScheduleInfo info;
  info.name = "naive";
  info.summary = "one microbatch at a time through all ranks and back";
  info.source = "the baseline of GPipe, arXiv 1811.06965, figure 2b";
  info.peak_in_flight = "1";
  info.makespan = "m (p (F + B) + 2 (p - 1) c)";
  info.where_to_use = "never for speed: the baseline, and for looking at one microbatch at a time";
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
