// V-Min: Qi 2024, arXiv 2405.15362, section 4.
//
// Rule: of the building blocks on the V map with split backward passes, the one whose squeezed order ends first for the
// given times within the memory below (v_search.hpp). The paper fixes one block for equal times.
// Peak in flight: 2 floor((p + 4) / 3) chunks on any rank, an activation being held until W: about a third of 1f1b's
// first rank (the paper's ceil((p + 4) / 3) microbatches).
// Makespan: no closed form; the bubble is about two thirds of 1f1b's for equal times, and grows with m for unequal
// ones. Constraints: two chunks per rank.

#include "sim/schedule/generators.hpp"
#include "sim/schedule/v_map.hpp"
#include "sim/schedule/v_search.hpp"

namespace flopcast {

namespace {

// Activations, each of one chunk.
int most_in_flight(int ranks) {
  return 2 * ((ranks + 4) / 3);
}

Program generate(const ScheduleRequest& request) {
  return search_v("v-min", request, true, most_in_flight(request.pipeline_ranks));
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_all_but_two_chunks("v-min", request);
}

}  // namespace

ScheduleInfo v_min_schedule() {
  ScheduleInfo info = v_search_info();
  info.name = "v-min";
  info.summary = "split backward passes on the V map with a third of 1f1b's activations";
  info.peak_in_flight = "2 floor((p + 4) / 3) chunks";
  info.where_to_use = "activations that fill the memory: a third of them for a bubble above 1f1b's";
  info.refuse = refuse;
  info.generate = generate;
  return info;
}

}  // namespace flopcast
