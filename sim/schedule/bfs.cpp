// Breadth-first pipeline parallelism (looped BFS): Lamy-Poirier 2022, arXiv 2211.05953.
//
// Rule: every rank runs all microbatches through its first chunk, then all through its second, …; then backwards,
// chunks from the last to the first. Within a chunk the backwards run from the last microbatch to the first (lifo, as
// torch.distributed.pipelining does) or in the forward order (fifo). Its point: with sharded parameters each stage is
// gathered and reduced once per direction and step.
// Peak in flight: m v on every rank.
// Makespan, exact for c <= min(F, B): m <= p: (v p + m - 1)(F + B) + 2 (v p - 1) c; m >= 2p: (m v + p - 1)(F + B) +
// 2 (p - 1) c; between: the latter at c = 0 only. bubble_fraction (p - 1) / (m v + p - 1) for m >= p and c = 0.
// Constraints: none; with one chunk it is gpipe.

#include <algorithm>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

Program generate(const ScheduleRequest& request) {
  Program program = empty_loop("bfs", request);
  const int count = request.microbatches;
  const bool first_in_first_out = request.variant == "fifo";
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(rank)];
    for (int stage = rank; stage < program.stage_count(); stage += request.pipeline_ranks) {
      for (int index = 0; index < count; ++index) actions.push_back(forward_action(stage, index));
    }
    for (int chunk = request.chunks - 1; chunk >= 0; --chunk) {
      const int stage = chunk * request.pipeline_ranks + rank;
      for (int index = 0; index < count; ++index) {
        actions.push_back(backward_action(stage, first_in_first_out ? index : count - 1 - index));
      }
    }
  }
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks chunks = request.chunks;
  const Ticks microbatches = request.microbatches;
  const Ticks latency = ranks == 1 ? 0 : times.latency;
  if (latency > std::min(times.forward, times.backward)) return std::nullopt;
  const Ticks both = times.forward + times.backward;
  if (microbatches <= ranks) return (chunks * ranks + microbatches - 1) * both + 2 * (chunks * ranks - 1) * latency;
  if (microbatches < 2 * ranks && latency != 0) return std::nullopt;
  return (microbatches * chunks + ranks - 1) * both + 2 * (ranks - 1) * latency;
}

}  // namespace

ScheduleInfo bfs_schedule() {
  ScheduleInfo info;
  info.name = "bfs";
  info.summary = "gpipe over several chunks per rank, chunk by chunk";
  info.source = "Breadth-first pipeline parallelism, arXiv 2211.05953";
  info.peak_in_flight = "m v";
  info.makespan =
      "m <= p: (v p + m - 1)(F + B) + 2 (v p - 1) c; m >= 2p: (m v + p - 1)(F + B) + 2 (p - 1) c; while c <= min(F, B)";
  info.where_to_use = "sharded parameters (FSDP) inside the pipeline: each stage is gathered once per direction";
  info.uses_chunks = true;
  info.default_chunks = 2;
  info.variants = {"lifo", "fifo"};
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
