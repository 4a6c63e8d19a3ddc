// DAPPLE's early-backward schedule: Fan et al. 2021, arXiv 2007.01045, section 3.2 (policies PA and PB).
//
// Rule: rank r runs K_r forwards before its first backward, then one forward and one backward in turn; D microbatches
// fit into memory.
//   pa  K_r = min(p - r, D)            1f1b where memory allows it
//   pb  K_r = min(2 (p - r) - 1, D)    eager-1f1b where memory allows it: hides the transfers
// Left out: DAPPLE's planner, which the planner's partitions stand for.
// Memory: min(m, K_r) activations.
// Makespan: D = 1: m (p (F + B) + 2 (p - 1) c), one microbatch after the other; pa with D >= p: 1f1b's, pb with
// D >= 2p - 1: eager-1f1b's.
// Constraints: none; D at least 1, without limit by default.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

bool is_eager(const ScheduleRequest& request) {
  return request.variant == "pb";
}

int limit_of(const ScheduleRequest& request) {
  return request.memory_limit.value_or(request.microbatches);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (limit_of(request) >= 1) return std::nullopt;
  return ScheduleRefusal{.problem = fmt::format("dapple cannot run with a memory limit of {}", *request.memory_limit),
                         .help = "at least 1 microbatch"};
}

Program generate(const ScheduleRequest& request) {
  std::vector<int> warmup = shortest_warmup(request.pipeline_ranks);
  for (int& forwards : warmup) {
    if (is_eager(request)) forwards *= 2;
    forwards = std::min(forwards, limit_of(request) - 1);
  }
  return one_forward_one_backward("dapple", request, warmup);
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks both = times.forward + times.backward;
  const Ticks transfers = 2 * (ranks - 1) * times.latency;
  const Ticks longest_warmup = is_eager(request) ? 2 * ranks - 1 : ranks;
  const Ticks limit = limit_of(request);
  if (limit == 1) return request.microbatches * (ranks * both + transfers);
  if (limit < std::min<Ticks>(longest_warmup, request.microbatches)) return std::nullopt;
  if (!is_eager(request)) return one_forward_one_backward_makespan(request, times);
  if (2 * times.latency > both) return std::nullopt;
  return (request.microbatches + ranks - 1) * both + transfers;
}

}  // namespace

ScheduleInfo dapple_schedule() {
  ScheduleInfo info;
  info.name = "dapple";
  info.summary = "1f1b or eager-1f1b with a warm-up that fits into memory";
  info.source = "DAPPLE, arXiv 2007.01045, section 3.2";
  info.constraints = "a memory limit of at least 1 microbatch";
  info.peak_in_flight = "min(m, D, p - r), pb min(m, D, 2 (p - r) - 1)";
  info.makespan = "D = 1: m (p (F + B) + 2 (p - 1) c); D >= p: 1f1b's; pb, D >= 2p - 1: eager-1f1b's";
  info.reads = {&ScheduleRequest::memory_limit};
  info.variants = {"pa", "pb"};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
