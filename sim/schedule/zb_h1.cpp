// ZB-H1: Qi 2023, arXiv 2401.10241, section 2.1.
//
// Rule: 1F1B with the backward pass split. Rank r executes min(m, p - 1 - r) forwards, then in turn a forward, an input
// gradient and, from its input gradient r on, the weight gradient of r microbatches before; then the same without
// forwards, then the weight gradients that are left. They fill the bubbles that 1F1B ends with.
// Peak in flight: min(m, p), 1F1B's first rank on every rank: an activation is held until W.
// Makespan: m (F + B) + (p - 1)(F + I - W), exact at c = 0 while W <= min(F, I) and m >= p: with F = I = W a third of
// 1F1B's bubble. bubble_fraction (p - 1)(F + I - W) / makespan.
// Constraints: one chunk per rank.

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/split_backward.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  return handcrafted_zero_bubble("zb-h1", request, 1);
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks weight = times.weight_gradient;
  const Ticks busy = request.microbatches * (times.forward + times.backward);
  if (ranks == 1) return busy;
  const bool exact =
      times.latency == 0 && request.microbatches >= ranks && weight <= std::min(times.forward, times.input_gradient());
  if (!exact) return std::nullopt;
  return busy + (ranks - 1) * (times.forward + times.input_gradient() - weight);
}

}  // namespace

ScheduleInfo zb_h1_schedule() {
  ScheduleInfo info;
  info.name = "zb-h1";
  info.summary =
      "1f1b with weight gradients moved into the bubble: a third of it left, the memory of 1f1b's first rank";
  info.source = "Zero Bubble, arXiv 2401.10241, section 2.1";
  info.peak_in_flight = "min(m, p)";
  info.makespan = "m (F + B) + (p - 1)(F + I - W) at c = 0 for m >= p, W <= min(F, I)";
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
