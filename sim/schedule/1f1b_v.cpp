// 1F1B-V: Qi 2024, arXiv 2405.15362, section 4: the V map with full backward passes.
//
// Rule: of the building blocks on the V map whose backward passes are whole, the one whose squeezed order ends first
// for the given times within the memory below (block_search.hpp). Peak in flight: max(4, ceil(3 p / 2)) chunks on any
// rank: three quarters of 1f1b's first rank. Makespan: no closed form. Bubble: more than 1f1b's in most cases, the
// price of the memory. Constraints: two chunks per rank.

#include <algorithm>

#include "sim/schedule/block_search.hpp"
#include "sim/schedule/generators.hpp"
#include "sim/schedule/v_map.hpp"

namespace flopcast {

namespace {

// Activations, each of one chunk.
int most_in_flight(int ranks) {
  return std::max(4, (3 * ranks + 1) / 2);
}

Program generate(const ScheduleRequest& request) {
  BlockSearch search;
  search.empty = empty_v("1f1b-v", request);
  search.chunks = 2;
  search.split = false;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule.limit = 2 * most_in_flight(request.pipeline_ranks);
  return search_blocks(search, request);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_all_but_two_chunks("1f1b-v", request);
}

}  // namespace

ScheduleInfo one_f_one_b_v_schedule() {
  ScheduleInfo info;
  info.name = "1f1b-v";
  info.summary = "1f1b on the V map: every rank holds the same, three quarters of what 1f1b's first rank does";
  info.source = "arXiv 2405.15362, section 4; own search over its building blocks";
  info.constraints = "two chunks per rank";
  info.peak_in_flight = "max(4, ceil(3 p / 2)) chunks";
  info.makespan = "no closed form";
  info.where_to_use = "no first rank that holds more than the others; links fast enough for twice the messages";
  info.uses_chunks = true;
  info.uses_times = true;
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  return info;
}

}  // namespace flopcast
