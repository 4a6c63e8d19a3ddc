// Hanayo, wave pipeline parallelism: Liu et al. 2023, arXiv 2308.15762, section 3.
//
// Rule: one copy of the model runs to and fro over the ranks in W waves, two chunks of a rank each; where it turns,
// two neighbouring stages share a rank and nothing is sent. Every rank runs backwards as soon as they are ready, then
// the earliest microbatch's forward; at most D microbatches are under way, p if no memory limit says otherwise. The
// order is what this rule gives for B = 2F without latency (greedy_order.hpp).
// Memory: at most 2 W min(m, D) chunks.
// Bubble: no closed form is exact. The paper gives (2p - 2) / (3p W + p - 1) for m = p and B = 2F; this order stays
// below it or within two hundredths of it.
// With m > p and D = p the waves break off between rounds of p microbatches; D = 2p fills the gaps.
// Constraints: an even number of chunks, 2W.

#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/greedy_order.hpp"
#include "sim/schedule/stage_maps.hpp"

namespace flopcast {

namespace {

int limit_of(const ScheduleRequest& request) {
  return request.memory_limit.value_or(request.pipeline_ranks);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (limit_of(request) < 1) {
    return ScheduleRefusal{.problem = fmt::format("hanayo cannot run with a memory limit of {}", limit_of(request)),
                           .help = "at least 1 microbatch"};
  }
  if (request.chunks % 2 == 0) return std::nullopt;
  return ScheduleRefusal{
      .problem = fmt::format("hanayo has two chunks per rank for each wave, {} is no multiple", request.chunks),
      .help = fmt::format("an even number of chunks, such as {}", request.chunks + 1)};
}

Program generate(const ScheduleRequest& request) {
  Program program = empty_zigzag("hanayo", request);
  GreedyRule rule;
  rule.microbatches = request.microbatches;
  rule.most_in_flight = std::min(limit_of(request), request.microbatches);
  fill_greedily(program, rule);
  return program;
}

}  // namespace

ScheduleInfo hanayo_schedule() {
  ScheduleInfo info;
  info.name = "hanayo";
  info.summary = "waves: the model runs to and fro over the ranks, v/2 times";
  info.source = "Hanayo, arXiv 2308.15762, section 3";
  info.constraints = "an even number of chunks, two for each wave; a memory limit of at least 1";
  info.peak_in_flight = "at most v min(m, p) chunks, or v D";
  info.makespan = "no exact form; idle share about (2p - 2) / (3p v/2 + p - 1) for m = p, B = 2F, c = 0";
  info.where_to_use = "few microbatches, links fast enough for v times the messages";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::memory_limit};
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  return info;
}

}  // namespace flopcast
