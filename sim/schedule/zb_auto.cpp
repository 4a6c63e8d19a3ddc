// Automatic zero bubble: the problem of Qi 2023, arXiv 2401.10241, section 3 (the schedule with the smallest bubble
// under a memory limit, given the times of F, I, W and the transfers), solved by our own search over building blocks
// (block_search.hpp), not by the paper's.
//
// Rule: the shortest order found. The memory limit counts microbatches: full (default) holds an activation until W, as
// our memory reports do; half gives one half of it back at I, as the paper counts.
// Peak in flight: the limit, with half up to twice as many; without a limit at most m.
// Makespan: at most that of zb-h1 and of zb-h2 where they fit; no closed form.
// Constraints: one chunk per rank.

#include <algorithm>

#include "sim/schedule/block_search.hpp"
#include "sim/schedule/generators.hpp"
#include "sim/schedule/in_flight.hpp"
#include "sim/schedule/orders.hpp"
#include "sim/schedule/split_backward.hpp"

namespace flopcast {

namespace {

constexpr int kLargestStep = 6;
constexpr int kLargestGap = 3;

Program generate(const ScheduleRequest& request) {
  BlockSearch search;
  search.empty = empty_loop("zb-auto", request);
  search.shapes = all_shapes(1, kLargestStep, kLargestGap);
  search.rule = {limit_in_halves(request, 1), request.variant == "half"};
  for (const int depth : {1, 2}) {
    Program rival = handcrafted_zero_bubble("zb-auto", request, depth);
    const std::vector<int> peaks = peak_in_flight(rival);
    const int peak = *std::max_element(peaks.begin(), peaks.end());
    if (peak <= request.memory_limit.value_or(peak)) search.rivals.push_back(std::move(rival));
  }
  return search_blocks(search, request);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_memory_limit("zb-auto", request);
}

}  // namespace

ScheduleInfo zb_auto_schedule() {
  ScheduleInfo info;
  info.name = "zb-auto";
  info.summary = "the shortest split 1f1b found for the given times and memory limit";
  info.source = "the problem of arXiv 2401.10241, section 3; own search";
  info.constraints = "a memory limit, if any, of at least 1 microbatch";
  info.peak_in_flight = "the memory limit; with zb-auto:half up to twice that";
  info.makespan = "at most zb-h1's, and zb-h2's where it fits";
  info.where_to_use = "split backward passes whose parts take different times, under a memory limit";
  info.uses_times = true;
  info.reads = {&ScheduleRequest::memory_limit};
  info.variants = {"full", "half"};
  info.refuse = refuse;
  info.generate = generate;
  return info;
}

}  // namespace flopcast
