// GPipe, fill and drain: Huang 2018, arXiv 1811.06965, section 2.2.
//
// Rule: F_0 .. F_{m-1}, then all backwards: in the same order (fifo, as torch.distributed.pipelining does) or from the
// last microbatch to the first (lifo, as torchgpipe does: the order in which autograd unwinds).
// Peak in flight: m on every rank.
// Makespan: (m + p - 1)(F + B) + 2 (p - 1) c for both variants and any c; bubble_fraction (p - 1) / (m + p - 1) at
// c = 0. Uneven stages: sum F + sum B + (m - 1)(max F + max B).
// Constraints: one chunk per rank; bfs is its generalisation to several.

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  Program program = empty_loop("gpipe", request);
  const int count = request.microbatches;
  const bool last_in_first_out = request.variant == "lifo";
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(rank)];
    for (int index = 0; index < count; ++index) actions.push_back(forward_action(rank, index));
    for (int index = 0; index < count; ++index) {
      actions.push_back(backward_action(rank, last_in_first_out ? count - 1 - index : index));
    }
  }
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  return (request.microbatches + ranks - 1) * (times.forward + times.backward) + 2 * (ranks - 1) * times.latency;
}

}  // namespace

ScheduleInfo gpipe_schedule() {
  ScheduleInfo info;
  info.name = "gpipe";
  info.summary = "all forwards, then all backwards";
  info.source = "GPipe, arXiv 1811.06965, section 2.2";
  info.peak_in_flight = "m";
  info.makespan = "(m + p - 1)(F + B) + 2 (p - 1) c";
  info.where_to_use = "few microbatches, memory to spare (or recomputation), slow links between ranks";
  info.variants = {"fifo", "lifo"};
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
