// Hanayo, wave pipeline parallelism: Liu et al. 2023, arXiv 2308.15762, section 3.
//
// Rule: one copy of the model runs to and fro over the ranks in W waves, two chunks of a rank each; where it turns,
// two neighbouring stages share a rank and nothing is sent. Every rank runs backwards as soon as they are ready, then
// the earliest microbatch's forward (greedy_order.hpp).
//   steady  a rank holds the activations of at most 2 W D chunks, those of D microbatches, p if no memory limit says
//           otherwise; the order for F = B without latency, in which waves follow each other without a gap (the
//           default)
//   rounds  at most D microbatches are under way; the order for B = 2F, in which waves break off between rounds of p
//           microbatches with D = p. D = 2p fills the gaps.
// Memory: at most 2 W min(m, D) chunks.
// Makespan at c = 0, steady: F = B of a chunk, p | m and D >= p: (2 W m + p - 1)(F + B), idle share (p - 1) /
// (2 W m + p - 1). Otherwise none is exact. The paper gives (2p - 2) / (3p W + p - 1) for m = p and B = 2F; both orders
// stay below it or within two hundredths of it. For B = 2F and m > p the order is worse than at F = B, and with W = 1
// and D = p it falls behind 1F1B of the same memory from m = 4p on (p = 4, m = 16: idle shares 0.232 and 0.158).
// Constraints: an even number of chunks, 2W.

#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/greedy_order.hpp"
#include "sim/schedule/stage_maps.hpp"

namespace flopcast {

namespace {

constexpr std::string_view kRounds = "rounds";

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
  if (request.variant == kRounds) {
    rule.most_in_flight = std::min(limit_of(request), request.microbatches);
  } else {
    rule.backward = rule.forward;
    rule.most_in_flight = request.microbatches;
    rule.most_held = request.chunks * std::min(limit_of(request), request.microbatches);
  }
  fill_greedily(program, rule);
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks microbatches = request.microbatches;
  if (request.variant == kRounds || times.latency != 0 || times.forward != times.backward) return std::nullopt;
  if (microbatches % ranks != 0 || limit_of(request) < ranks) return std::nullopt;
  return (microbatches * request.chunks + ranks - 1) * (times.forward + times.backward);
}

}  // namespace

ScheduleInfo hanayo_schedule() {
  ScheduleInfo info;
  info.name = "hanayo";
  info.summary = "waves: the model runs to and fro over the ranks, v/2 times";
  info.source = "Hanayo, arXiv 2308.15762, section 3";
  info.constraints = "an even number of chunks, two for each wave; a memory limit of at least 1";
  info.peak_in_flight = "at most v min(m, p) chunks, or v D";
  info.makespan =
      "p | m, F = B, c = 0: (m v + p - 1)(F + B); idle share about (2p - 2) / (3p v/2 + p - 1) for m = p, B = 2F";
  info.where_to_use = "few microbatches, links fast enough for v times the messages";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::memory_limit};
  info.default_chunks = 2;
  info.variants = {"steady", kRounds};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
