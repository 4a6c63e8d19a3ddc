#include "sim/schedules/families.hpp"

#include <algorithm>

#include "sim/program/program.hpp"
#include "sim/search/block_search.hpp"

namespace flopcast {

Program handcrafted_zero_bubble(std::string_view schedule, const ScheduleRequest& request, int depth) {
  Program program = empty_loop(schedule, request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    Alternation order;
    order.passes = static_cast<std::size_t>(request.microbatches);
    order.warmup = static_cast<std::size_t>(depth) * static_cast<std::size_t>(request.pipeline_ranks - 1 - rank);
    order.delay = static_cast<std::size_t>(depth) * static_cast<std::size_t>(rank);
    alternate(
        order, [rank](std::size_t pass) { return forward_action(StageIndex(rank), MicrobatchIndex(pass)); },
        [rank](std::size_t pass) { return input_gradient_action(StageIndex(rank), MicrobatchIndex(pass)); },
        program.ranks[rank]);
  }
  return program;
}

// ZB-H1: Qi 2023, arXiv 2401.10241, section 2.1.
//
// Rule: 1F1B with the backward pass split. Rank r executes min(m, p - 1 - r) forwards, then in turn a forward, an input
// gradient and, from its input gradient r on, the weight gradient of the microbatch r before; then the same without
// forwards, then the remaining weight gradients. They fill the bubbles at the end of 1F1B.
// Peak in flight: min(m, p) on every rank, as on 1F1B's first rank: an activation is held until W.
// Makespan: m (F + B) + (p - 1)(F + I - W), exact at c = 0 while W <= min(F, I) and m >= p; with F = I = W a third of
// 1F1B's bubble. bubble_fraction (p - 1)(F + I - W) / makespan.
// Constraints: one chunk per rank.

namespace {

std::optional<Ticks> zb_h1_makespan(const ScheduleRequest& request, const UniformTimes& times) {
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
      "1f1b with weight gradients moved into the bubble: a third of its bubble, the memory of its first rank";
  info.source = "Zero Bubble, arXiv 2401.10241, section 2.1";
  info.peak_in_flight = "min(m, p)";
  info.makespan = "m (F + B) + (p - 1)(F + I - W) at c = 0 for m >= p, W <= min(F, I)";
  info.where_to_use = "1f1b's memory with a third of its bubble, if backward passes can be split";
  info.generate = [](const ScheduleRequest& request) { return handcrafted_zero_bubble("zb-h1", request, 1); };
  info.closed_form_makespan = zb_h1_makespan;
  return info;
}

// ZB-H2: Qi 2023, arXiv 2401.10241, section 2.2.
//
// Rule: rank r executes min(m, 2 (p - 1 - r)) forwards, then in turn a forward, an input gradient and, from its input
// gradient 2 r on, the weight gradient of the microbatch 2 r before; then the same without forwards, then the remaining
// weight gradients.
// Peak in flight: min(m, 2 p - 1): an activation is held until W.
// Makespan: m (F + B) + (p - 1) F, exact at c = 0 while I <= 2 min(F, W) and m >= 2 p - 1. With F = I = W no rank idles
// between its first and its last action; the paper's "zero bubble" counts that span, and needs an optimizer step that
// waits for no other rank (section 4). The remaining bubble here, (p - 1) F, is the wait for the first activation.
// Constraints: one chunk per rank; fewer than 2 p - 1 microbatches are allowed, but the bubble then grows.

namespace {

std::optional<Ticks> zb_h2_makespan(const ScheduleRequest& request, const UniformTimes& times) {
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
  info.where_to_use = "memory for twice the activations and no synchronisation before the optimizer's step";
  info.generate = [](const ScheduleRequest& request) { return handcrafted_zero_bubble("zb-h2", request, 2); };
  info.closed_form_makespan = zb_h2_makespan;
  return info;
}

// Automatic zero bubble: the problem of Qi 2023, arXiv 2401.10241, section 3 (the schedule with the smallest bubble
// under a memory limit, given the times of F, I, W and the transfers), solved by flopcast's search over building blocks
// (sim/search/block_search.hpp), not by the paper's solver.
//
// Rule: the shortest order found. The memory limit counts microbatches: full (default) holds an activation until W, as
// in flopcast's memory reports; half frees one half of it at I, as the paper counts.
// Peak in flight: the limit, or up to twice the limit with half; without a limit at most m.
// Makespan: at most that of zb-h1 and of zb-h2 if they fit; no closed form.
// Constraints: one chunk per rank.

namespace {

constexpr int kLargestStep = 6;
constexpr int kLargestGap = 3;

Program generate_zb_auto(const ScheduleRequest& request) {
  BlockSearch search;
  search.empty = empty_loop("zb-auto", request);
  search.shapes = all_shapes(1, kLargestStep, kLargestGap);
  search.rule = rule_of_variant(request, 1);
  for (const int depth : {1, 2}) {
    Program rival = handcrafted_zero_bubble("zb-auto", request, depth);
    const std::vector<int> peaks = peak_in_flight(rival);
    const int peak = *std::max_element(peaks.begin(), peaks.end());
    if (peak <= request.memory_limit.value_or(peak)) search.rivals.push_back(std::move(rival));
  }
  return search_blocks(search, request);
}

}  // namespace

ScheduleInfo zb_auto_schedule() {
  ScheduleInfo info;
  info.name = "zb-auto";
  info.summary = "the shortest split 1f1b found for the given times and memory limit";
  info.source = "the problem of arXiv 2401.10241, section 3; flopcast's search";
  info.constraints = "a memory limit, if any, of at least 1 microbatch";
  info.peak_in_flight = "the memory limit; with zb-auto:half up to twice that";
  info.makespan = "at most that of zb-h1, and of zb-h2 if it fits";
  info.where_to_use = "split backward passes whose parts take different times, under a memory limit";
  info.uses_times = true;
  info.reads = {&ScheduleRequest::memory_limit};
  info.variants = {"full", "half"};
  info.refuse = [](const ScheduleRequest& request) { return refuse_memory_limit("zb-auto", request); };
  info.generate = generate_zb_auto;
  return info;
}

}  // namespace flopcast
