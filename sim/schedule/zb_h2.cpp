// ZB-H2: Qi 2023, arXiv 2401.10241, section 2.2.
//
// Rule: rank r executes min(m, 2 (p - 1 - r)) forwards, then in turn a forward, an input gradient and, from its input
// gradient 2 r on, the weight gradient of 2 r microbatches before; then the same without forwards, then the weight
// gradients that are left.
// Peak in flight: min(m, 2 p - 1): an activation is held until W.
// Makespan: m (F + B) + (p - 1) F, exact at c = 0 while I <= 2 min(F, W) and m >= 2 p - 1. With F = I = W no rank idles
// between its first and its last action; the paper's "zero bubble" counts that span, and needs an optimizer step that
// waits for no other rank (section 4). What is left here, (p - 1) F, is the wait for the first activation. Constraints:
// one chunk per rank; fewer than 2 p - 1 microbatches are fine, the bubble then grows.

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/split_backward.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  return handcrafted_zero_bubble("zb-h2", request, 2);
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks busy = request.microbatches * (times.forward + times.backward);
  if (ranks == 1) return busy;
  const bool exact = times.latency == 0 && request.microbatches >= 2 * ranks - 1 &&
                     times.input_gradient() <= 2 * std::min(times.forward, times.weight_gradient);
  if (!exact) return std::nullopt;
  return busy + (ranks - 1) * times.forward;
}

}  // namespace

ScheduleInfo zb_h2_schedule() {
  ScheduleInfo info;
  info.name = "zb-h2";
  info.summary = "zb-h1 with twice the activations: no rank idles between its first and its last action";
  info.source = "Zero Bubble, arXiv 2401.10241, section 2.2";
  info.peak_in_flight = "min(m, 2 p - 1)";
  info.makespan = "m (F + B) + (p - 1) F at c = 0 for m >= 2 p - 1, I <= 2 min(F, W)";
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
