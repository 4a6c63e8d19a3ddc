// Interleaved zero bubble: ScheduleInterleavedZeroBubble of torch.distributed.pipelining, which carries ZB-H1 (Qi 2023,
// arXiv 2401.10241, section 2.1) over to several chunks per rank.
//
// Rule: interleaved 1F1B's table of microbatches and chunks, but a warm-up of min(m v, p - 1 - r + (v - 1) N) forwards;
// then in turn a forward, an input gradient and, from the rank's input gradient r on, the weight gradient of r input
// gradients before; then the same without forwards, then the weight gradients that are left.
// Peak in flight: (v - 1) N + p chunks, min(m v, ...); an activation is held until W.
// Makespan: m v (F + B) + (p - 1)(F + I - W), exact at c = 0 for m >= p while W <= min(F, I).
// Constraints: those of interleaved (PyTorch's own among them); one chunk: zb-h1.

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/interleaving_group.hpp"
#include "sim/schedule/orders.hpp"
#include "sim/schedule/split_backward.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  if (request.chunks == 1) return handcrafted_zero_bubble("interleaved-zb", request, 1);
  Program program = empty_loop("interleaved-zb", request);
  const int group_size = *interleaving_group(request);
  const std::vector<ChunkTurn> table = interleaving_table(request.microbatches, request.chunks, group_size);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    SplitOrder order;
    for (const ChunkTurn& turn : table) {
      const int mirrored = request.chunks - 1 - turn.chunk;
      order.forwards.push_back(forward_action(turn.chunk * request.pipeline_ranks + rank, turn.microbatch));
      order.input_gradients.push_back(input_gradient_action(mirrored * request.pipeline_ranks + rank, turn.microbatch));
    }
    order.warmup = static_cast<std::size_t>(request.pipeline_ranks - 1 - rank) +
                   static_cast<std::size_t>(request.chunks - 1) * static_cast<std::size_t>(group_size);
    order.delay = static_cast<std::size_t>(rank);
    append_split_order(order, program.ranks[static_cast<std::size_t>(rank)]);
  }
  return program;
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_interleaving("interleaved-zb", request);
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks weight = times.weight_gradient;
  const Ticks busy = Ticks{request.microbatches} * request.chunks * (times.forward + times.backward);
  const bool exact =
      times.latency == 0 && request.microbatches >= ranks && weight <= std::min(times.forward, times.input_gradient());
  if (!exact) return std::nullopt;
  return busy + (ranks - 1) * (times.forward + times.input_gradient() - weight);
}

}  // namespace

ScheduleInfo interleaved_zb_schedule() {
  ScheduleInfo info;
  info.name = "interleaved-zb";
  info.summary = "interleaved with split backward passes: shorter warm-up, weight gradients in the bubble";
  info.source = "ScheduleInterleavedZeroBubble of PyTorch, after arXiv 2401.10241";
  info.constraints = "those of interleaved";
  info.peak_in_flight = "min(m v, (v - 1) N + p) chunks";
  info.makespan = "m v (F + B) + (p - 1)(F + I - W) at c = 0 for m >= p, W <= min(F, I)";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::group_size};
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
