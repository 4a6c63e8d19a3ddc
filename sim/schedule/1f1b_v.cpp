// 1F1B-V: Qi 2024, arXiv 2405.15362, section 4: the V map with full backward passes.
//
// Rule: of the building blocks on the V map whose backward passes are whole, the one whose squeezed order ends first
// for the given times within the memory below (v_search.hpp). Peak in flight: max(4, ceil(3 p / 2)) chunks on any
// rank: three quarters of 1f1b's first rank. Makespan: no closed form. Bubble: more than 1f1b's in most cases, the
// price of the memory. Constraints: two chunks per rank.

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/v_map.hpp"
#include "sim/schedule/v_search.hpp"

namespace flopcast {

namespace {

// Activations, each of one chunk.
int most_in_flight(int ranks) {
  return std::max(4, (3 * ranks + 1) / 2);
}

Program generate(const ScheduleRequest& request) {
  return search_v("1f1b-v", request, false, most_in_flight(request.pipeline_ranks));
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_all_but_two_chunks("1f1b-v", request);
}

}  // namespace

ScheduleInfo one_f_one_b_v_schedule() {
  ScheduleInfo info = v_search_info();
  info.name = "1f1b-v";
  info.summary = "1f1b on the V map: every rank holds the same, three quarters of what 1f1b's first rank does";
  info.peak_in_flight = "max(4, ceil(3 p / 2)) chunks";
  info.where_to_use = "no first rank that holds more than the others; links fast enough for twice the messages";
  info.refuse = refuse;
  info.generate = generate;
  return info;
}

}  // namespace flopcast
