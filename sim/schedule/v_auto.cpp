// Automatic V: zb-auto's search on the V map; the schedules of Qi 2024, arXiv 2405.15362, for any memory limit.
//
// Rule: the shortest order found under the memory limit, which counts microbatches, two activations each: full
// (default) holds an activation until W, as our memory reports do; half gives one half of it back at I, as the authors'
// program counts; chunks is half with a limit that counts activations of one chunk, so that it can be odd.
// Peak in flight: the limit, with half and chunks up to twice as many; without a limit at most 2 m chunks.
// Makespan: no closed form.
// Constraints: two chunks per rank.

#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/block_search.hpp"
#include "sim/schedule/generators.hpp"
#include "sim/schedule/v_map.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  BlockSearch search;
  search.empty = empty_v("v-auto", request);
  search.chunks = 2;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule = {limit_in_halves(request, 2), request.variant != "full" && !request.variant.empty()};
  if (request.variant == "chunks" && request.memory_limit) {
    search.rule.limit = 2 * std::min(*request.memory_limit, 2 * request.microbatches);
  }
  return search_blocks(search, request);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (auto refusal = refuse_all_but_two_chunks("v-auto", request)) return refusal;
  constexpr int kFewestChunks = 2;
  if (request.variant == "chunks" && request.memory_limit && *request.memory_limit < kFewestChunks) {
    return ScheduleRefusal{
        .problem = fmt::format("v-auto:chunks cannot run with a memory limit of {}", *request.memory_limit),
        .help = "at least 2 chunks, one microbatch"};
  }
  return refuse_memory_limit("v-auto", request);
}

}  // namespace

ScheduleInfo v_auto_schedule() {
  ScheduleInfo info;
  info.name = "v-auto";
  info.summary = "the shortest split order found on the V map for the given times and memory limit";
  info.source = "arXiv 2405.15362, section 3; own search over its building blocks";
  info.constraints =
      "two chunks per rank; a memory limit, if any, of at least 1 microbatch (with v-auto:chunks, 2 chunks)";
  info.peak_in_flight = "the memory limit; with v-auto:half and v-auto:chunks up to twice that";
  info.makespan = "no closed form";
  info.where_to_use = "a memory limit between those of v-min and zbv";
  info.uses_chunks = true;
  info.uses_times = true;
  info.reads = {&ScheduleRequest::memory_limit};
  info.variants = {"full", "half", "chunks"};
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  return info;
}

}  // namespace flopcast
