// DualPipeV: "cut in half" DualPipe, Sea AI Lab 2025, as in deepseek-ai/DualPipe and PyTorch's ScheduleDualPipeV.
//
// Rule: one model of 2p stages in a V: rank r holds stages r and 2p - 1 - r. The order is DualPipe's
// (dualpipe_order.hpp, with p positions), whose second direction is now the way back. Memory: 2p + 1 chunks on every
// rank, of half the size of a DualPipe stage's; the parameters once. Bubble: (p - 1)(F&B + B - 3W) a rank, times of a
// chunk; exact where F = I = W and without latency. Constraints: two chunks per rank, m >= 2p, as PyTorch demands.

#include <fmt/format.h>

#include <cstddef>

#include "sim/schedule/dualpipe_order.hpp"
#include "sim/schedule/generators.hpp"
#include "sim/schedule/stage_maps.hpp"

namespace flopcast {

namespace {

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (request.chunks != 2) {
    return ScheduleRefusal{.problem = fmt::format("dualpipev has two chunks per rank, not {}", request.chunks),
                           .help = "chunks 2"};
  }
  if (request.microbatches / 2 < request.pipeline_ranks) {
    return ScheduleRefusal{.problem = fmt::format("dualpipev with {} stages needs more than {} microbatches",
                                                  2 * request.pipeline_ranks, request.microbatches),
                           .help = fmt::format("at least {} microbatches, one a stage", 2 * request.pipeline_ranks)};
  }
  return std::nullopt;
}

Program generate(const ScheduleRequest& request) {
  Program program = empty_zigzag("dualpipev", request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    DualPipePlace place;
    place.near = rank;
    place.far = 2 * request.pipeline_ranks - 1 - rank;
    place.position = rank;
    place.positions = request.pipeline_ranks;
    place.microbatches = request.microbatches;
    program.ranks[static_cast<std::size_t>(rank)] = dualpipe_order(place);
  }
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const bool equal = times.forward == times.weight_gradient && times.forward == times.input_gradient();
  if (times.latency != 0 || !equal) return std::nullopt;
  const Ticks pair = times.forward + times.backward;
  const Ticks bubble = (request.pipeline_ranks - 1) * (pair + times.backward - 3 * times.weight_gradient);
  return 2 * Ticks{request.microbatches} * pair + bubble;
}

}  // namespace

ScheduleInfo dualpipev_schedule() {
  ScheduleInfo info;
  info.name = "dualpipev";
  info.summary = "dualpipe with one copy of the model, folded into a V";
  info.source = "Sea AI Lab, Cut-in-half DualPipe, 2025; deepseek-ai/DualPipe";
  info.constraints = "two chunks per rank, m >= 2p";
  info.peak_in_flight = "2p + 1 chunks";
  info.makespan = "2m (F + B) + (p - 1)(F + 2B - 3W) for F = I = W, pairs that take F + B, and c = 0";
  info.where_to_use = "dualpipe without its second copy of the weights";
  info.uses_chunks = true;
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
