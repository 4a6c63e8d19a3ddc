// Interleaved 1F1B: Narayanan 2021, arXiv 2104.04473, section 2.2.2.
//
// Rule: forwards go through groups of N microbatches; within a group chunk by chunk, within a chunk microbatch by
// microbatch. Backwards use the same table with the chunks reversed. Rank r executes min(m v, 2 (p - 1 - r) + (v - 1)
// N) forwards, then one forward and one backward in turn, then the backwards that are left. One chunk: 1f1b, as in
// Megatron-LM. Left out: the longer warm-up with which Megatron-LM overlaps the experts' all-to-all.
// Peak in flight: min(m v, 2 (p - 1 - r) + (v - 1) N + 1) chunks.
// Makespan: m >= p, c = 0: (m v + p - 1)(F + B), bubble_fraction (p - 1) / (m v + p - 1); N = p, p | m: + 2c (v p - 1);
// m <= p: (v p + m - 1)(F + B) + 2c (v p - 1); with latency exact while c <= min(F, B).
// Constraints: those of Megatron-LM or those of PyTorch (interleaving_group.hpp).

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/interleaving_group.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

std::size_t warmup_of(const ScheduleRequest& request, int group_size, int rank) {
  return 2 * static_cast<std::size_t>(request.pipeline_ranks - 1 - rank) +
         static_cast<std::size_t>(request.chunks - 1) * static_cast<std::size_t>(group_size);
}

Program generate(const ScheduleRequest& request) {
  if (request.chunks == 1) {
    return one_forward_one_backward("interleaved", request, shortest_warmup(request.pipeline_ranks));
  }
  Program program = empty_loop("interleaved", request);
  const int group_size = *interleaving_group(request);
  const std::vector<ChunkTurn> table = interleaving_table(request.microbatches, request.chunks, group_size);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(rank)];
    const auto push_forward = [&](const ChunkTurn& slot) {
      actions.push_back(forward_action(slot.chunk * request.pipeline_ranks + rank, slot.microbatch));
    };
    const auto push_backward = [&](const ChunkTurn& slot) {
      const int chunk = request.chunks - 1 - slot.chunk;
      actions.push_back(backward_action(chunk * request.pipeline_ranks + rank, slot.microbatch));
    };
    const std::size_t warmup = std::min(table.size(), warmup_of(request, group_size, rank));
    for (std::size_t index = 0; index < warmup; ++index) push_forward(table[index]);
    for (std::size_t index = warmup; index < table.size(); ++index) {
      push_forward(table[index]);
      push_backward(table[index - warmup]);
    }
    for (std::size_t index = table.size() - warmup; index < table.size(); ++index) push_backward(table[index]);
  }
  return program;
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_interleaving("interleaved", request);
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  if (request.chunks == 1) return one_forward_one_backward_makespan(request, times);
  const Ticks ranks = request.pipeline_ranks;
  const Ticks chunks = request.chunks;
  const Ticks microbatches = request.microbatches;
  const Ticks latency = ranks == 1 ? 0 : times.latency;
  const Ticks slots = microbatches < ranks ? chunks * ranks + microbatches - 1 : microbatches * chunks + ranks - 1;
  const bool even = microbatches <= ranks || (microbatches % ranks == 0 && *interleaving_group(request) == ranks);
  if (latency != 0 && (!even || latency > std::min(times.forward, times.backward))) return std::nullopt;
  return slots * (times.forward + times.backward) + 2 * (chunks * ranks - 1) * latency;
}

}  // namespace

ScheduleInfo interleaved_schedule() {
  ScheduleInfo info;
  info.name = "interleaved";
  info.summary = "1f1b over several chunks per rank: a bubble v times smaller, v times the transfers";
  info.source = "Megatron-LM, arXiv 2104.04473, section 2.2.2";
  info.constraints = "p divides m, or max(1, m / p) rounded down divides m, or p <= N <= m and m mod N is 0 or >= p";
  info.peak_in_flight = "min(m v, 2 (p - 1 - r) + (v - 1) N + 1) chunks";
  info.makespan = "(m v + p - 1)(F + B) for m >= p; with N = p and p | m: + 2c (v p - 1) while c <= min(F, B)";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::group_size};
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
