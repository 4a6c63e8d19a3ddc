#include "sim/schedule/v_search.hpp"

#include "sim/schedule/block_search.hpp"
#include "sim/schedule/v_map.hpp"

namespace flopcast {

Program search_v(std::string_view schedule, const ScheduleRequest& request, bool split, int most_in_flight) {
  BlockSearch search;
  search.empty = empty_v(schedule, request);
  search.chunks = 2;
  search.split = split;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule.limit = 2 * most_in_flight;
  return search_blocks(search, request);
}

ScheduleInfo v_search_info() {
  ScheduleInfo info;
  info.source = "arXiv 2405.15362, section 4; own search over its building blocks";
  info.constraints = "two chunks per rank";
  info.makespan = "no closed form";
  info.uses_chunks = true;
  info.uses_times = true;
  info.default_chunks = 2;
  return info;
}

}  // namespace flopcast
