// DualPipe: DeepSeek-V3, arXiv 2412.19437, section 3.2.1, and the order that deepseek-ai/DualPipe executes.
//
// Rule: two copies of the model run through the ranks in opposite directions, m/2 microbatches each. Rank r holds stage
// r of one copy and stage p - 1 - r of the other; it overlaps a forward of one with a backward of the other
// (dualpipe_order.hpp, with p/2 positions). The last backwards split off W to fill the bubbles at the end.
// Memory: p + 1 activations on every rank, twice the parameters; the gradients of the two copies are added up.
// Bubble: (p/2 - 1)(F&B + B - 3W) a rank, F&B being the time of an overlapped pair; exact where F = I = W and without
// latency, too high by a little elsewhere: the outer ranks wait less.
// Constraints: p and m even, m >= 2p.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "sim/schedule/dualpipe_order.hpp"
#include "sim/schedule/generators.hpp"
#include "sim/schedule/stage_maps.hpp"

namespace flopcast {

namespace {

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  const int microbatches = request.microbatches;
  if (ranks % 2 != 0) {
    return ScheduleRefusal{.problem = fmt::format("dualpipe pairs the ranks up, {} cannot be", ranks),
                           .help = fmt::format("an even number of pipeline ranks, such as {}", ranks + 1)};
  }
  if (microbatches % 2 != 0) {
    return ScheduleRefusal{
        .problem = fmt::format("dualpipe halves the microbatches between its two copies, {} cannot be", microbatches),
        .help = fmt::format("an even number of microbatches, such as {}", std::max(2 * ranks, microbatches + 1))};
  }
  if (microbatches / 2 < ranks) {
    return ScheduleRefusal{
        .problem = fmt::format("dualpipe with {} pipeline ranks needs more than {} microbatches", ranks, microbatches),
        .help = fmt::format("at least {} microbatches, two a rank", 2L * ranks)};
  }
  return std::nullopt;
}

Program generate(const ScheduleRequest& request) {
  Program program = empty_two_chains("dualpipe", request);
  const int ranks = request.pipeline_ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const int mirrored = 2 * ranks - 1 - rank;
    const bool upper_half = rank < ranks / 2;
    DualPipePlace place;
    place.near = upper_half ? rank : mirrored;
    place.far = upper_half ? mirrored : rank;
    place.position = std::min(rank, ranks - 1 - rank);
    place.positions = ranks / 2;
    place.microbatches = request.microbatches / 2;
    program.ranks[static_cast<std::size_t>(rank)] = dualpipe_order(place);
  }
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const bool equal = times.forward == times.weight_gradient && times.forward == times.input_gradient();
  if (times.latency != 0 || !equal) return std::nullopt;
  const Ticks pair = times.forward + times.backward;
  const Ticks bubble = (request.pipeline_ranks / 2 - 1) * (pair + times.backward - 3 * times.weight_gradient);
  return Ticks{request.microbatches} * pair + bubble;
}

}  // namespace

ScheduleInfo dualpipe_schedule() {
  ScheduleInfo info;
  info.name = "dualpipe";
  info.summary = "two copies of the model in opposite directions, in overlapped pairs";
  info.source = "DeepSeek-V3, arXiv 2412.19437, section 3.2.1";
  info.constraints = "p and m even, m >= 2p";
  info.peak_in_flight = "p + 1; two copies";
  info.makespan = "m (F + B) + (p/2 - 1)(F + 2B - 3W) for F = I = W, pairs that take F + B, and c = 0";
  info.where_to_use =
      "expert parallelism whose messages hide under a paired pass; memory for two copies of the weights";
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
