// V-Min: Qi 2024, arXiv 2405.15362, section 4.
//
// Rule: of the building blocks on the V map with split backward passes, the one whose squeezed order ends first for the
// given times within the memory below (block_search.hpp). The paper fixes one block for equal times.
// Peak in flight: 2 floor((p + 4) / 3) chunks on any rank, an activation being held until W: about a third of 1f1b's
// first rank (the paper's ceil((p + 4) / 3) microbatches).
// Makespan: no closed form; the bubble is about two thirds of 1f1b's for equal times, and grows with m for unequal
// ones. Constraints: two chunks per rank.

#include "sim/schedule/block_search.hpp"
#include "sim/schedule/generators.hpp"
#include "sim/schedule/v_map.hpp"

namespace flopcast {

namespace {

// Activations, each of one chunk.
int most_in_flight(int ranks) {
  return 2 * ((ranks + 4) / 3);
}

Program generate(const ScheduleRequest& request) {
  BlockSearch search;
  search.empty = empty_v("v-min", request);
  search.chunks = 2;
  search.split = true;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule.limit = 2 * most_in_flight(request.pipeline_ranks);
  return search_blocks(search, request);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_all_but_two_chunks("v-min", request);
}

}  // namespace

ScheduleInfo v_min_schedule() {
  ScheduleInfo info;
  info.name = "v-min";
  info.summary = "split backward passes on the V map with a third of 1f1b's activations";
  info.source = "arXiv 2405.15362, section 4; own search over its building blocks";
  info.constraints = "two chunks per rank";
  info.peak_in_flight = "2 floor((p + 4) / 3) chunks";
  info.makespan = "no closed form";
  info.where_to_use = "activations that fill the memory: a third of them for a bubble above 1f1b's";
  info.uses_chunks = true;
  info.uses_times = true;
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  return info;
}

}  // namespace flopcast
