#include "sim/schedules/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace flopcast {

// Breadth-first pipeline parallelism (looped BFS): Lamy-Poirier 2022, arXiv 2211.05953.
//
// Rule: every rank runs all microbatches through its first chunk, then all through its second, …; then the backwards,
// with chunks from the last to the first. Within a chunk the backwards run from the last microbatch to the first (lifo,
// as torch.distributed.pipelining does) or in the forward order (fifo). Its advantage: with sharded parameters each
// stage is gathered and reduced once per direction and step.
// Peak in flight: m v on every rank.
// Makespan, exact for c <= min(F, B): m <= p: (v p + m - 1)(F + B) + 2 (v p - 1) c; m >= 2p: (m v + p - 1)(F + B) + 2
// (p - 1) c; between: the latter at c = 0 only. bubble_fraction (p - 1) / (m v + p - 1) for m >= p and c = 0.
// Constraints: none; with one chunk it is gpipe.

namespace {

Program generate_bfs(const ScheduleRequest& request) {
  Program program = empty_loop("bfs", request);
  const int count = request.microbatches;
  const bool first_in_first_out = request.variant == "fifo";
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[rank];
    for (int stage = rank; stage < program.stage_count(); stage += request.pipeline_ranks) {
      for (int index = 0; index < count; ++index)
        actions.push_back(forward_action(StageIndex(stage), MicrobatchIndex(index)));
    }
    for (int chunk = request.chunks - 1; chunk >= 0; --chunk) {
      const StageIndex stage(chunk * request.pipeline_ranks + rank);
      for (int index = 0; index < count; ++index) {
        const MicrobatchIndex microbatch(first_in_first_out ? index : count - 1 - index);
        actions.push_back(backward_action(stage, microbatch));
      }
    }
  }
  return program;
}

std::optional<Ticks> bfs_makespan(const ScheduleRequest& request, const UniformTimes& times) {
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
  info.generate = generate_bfs;
  info.closed_form_makespan = bfs_makespan;
  return info;
}

namespace {

bool megatron_accepts(int ranks, int microbatches, int group) {
  const int remainder = microbatches % group;
  return ranks <= group && group <= microbatches && (remainder == 0 || remainder >= ranks);
}

std::optional<int> pytorch_group(int ranks, int microbatches) {
  const int rounds = std::max(1, microbatches / ranks);
  if (microbatches % rounds != 0) return std::nullopt;
  return microbatches / rounds;
}

constexpr int kSuggestions = 4;

// The values in 1 .. limit closest to `wanted` that satisfy `valid`, in ascending order; none farther away than
// `reach`.
template <class Predicate>
std::string nearest_valid(int wanted, int limit, int reach, const Predicate& valid) {
  std::vector<int> found;
  for (int distance = 1; distance <= reach && static_cast<int>(found.size()) < kSuggestions; ++distance) {
    if (wanted - distance >= 1 && wanted - distance <= limit && valid(wanted - distance)) {
      found.push_back(wanted - distance);
    }
    if (distance <= limit - wanted && valid(wanted + distance)) found.push_back(wanted + distance);
  }
  std::sort(found.begin(), found.end());
  return fmt::format("{}", fmt::join(found, ", "));
}

// The interleaving group N: number of microbatches that go through a chunk before the next chunk has its turn. Valid
// groups are those that Megatron-LM accepts, p <= N <= m and (m mod N = 0 or m mod N >= p), and the one that
// torch.distributed.pipelining uses, N = m / rounds with rounds = max(1, floor(m / p)) dividing m. The default is p if
// p divides m, else PyTorch's. Returns nullopt if no group, or not the requested one, is valid.
std::optional<int> interleaving_group(const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  const int microbatches = request.microbatches;
  const std::optional<int> pytorch = pytorch_group(ranks, microbatches);
  if (!request.group_size) return megatron_accepts(ranks, microbatches, ranks) ? ranks : pytorch;
  const int group = *request.group_size;
  if (group < 1) return std::nullopt;
  return megatron_accepts(ranks, microbatches, group) || pytorch == group ? request.group_size : std::nullopt;
}

// One turn of a chunk: on rank r, a forward of stage chunk * p + r.
struct ChunkTurn {
  MicrobatchIndex microbatch;
  ChunkIndex chunk;
};

// Every microbatch and chunk once: group by group, chunk by chunk within a group, microbatch by microbatch within a
// chunk.
std::vector<ChunkTurn> interleaving_table(int microbatches, int chunks, int group_size) {
  std::vector<ChunkTurn> table;
  for (int begin = 0; begin < microbatches; begin += group_size) {
    const int end = begin + std::min(group_size, microbatches - begin);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int microbatch = begin; microbatch < end; ++microbatch)
        table.push_back({MicrobatchIndex(microbatch), ChunkIndex(chunk)});
    }
  }
  return table;
}

// Forward passes in the order of the table, backward passes with the chunks reversed; `order_of(rank)` describes how
// they alternate.
template <class OrderOf>
Program loop_in_groups(std::string_view schedule, const ScheduleRequest& request, int group_size,
                       const OrderOf& order_of) {
  Program program = empty_loop(schedule, request);
  const std::vector<ChunkTurn> table = interleaving_table(request.microbatches, request.chunks, group_size);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    Alternation order = order_of(static_cast<std::size_t>(rank));
    order.passes = table.size();
    const auto stage_of = [&](ChunkIndex chunk) { return StageIndex(chunk * request.pipeline_ranks + rank); };
    const ActionKind backward = order.delay ? ActionKind::kInputGradient : ActionKind::kBackward;
    alternate(
        order, [&](std::size_t pass) { return forward_action(stage_of(table[pass].chunk), table[pass].microbatch); },
        [&](std::size_t pass) {
          const ChunkIndex mirrored(request.chunks - 1 - table[pass].chunk);
          return action_of(backward, stage_of(mirrored), table[pass].microbatch);
        },
        program.ranks[rank]);
  }
  return program;
}

// Number of forwards that a rank runs before the first one of its last chunk.
std::size_t passes_before_last_chunk(const ScheduleRequest& request, int group_size) {
  return static_cast<std::size_t>(request.chunks - 1) * static_cast<std::size_t>(group_size);
}

// Refusal of the schedule called `name`, with the valid groups or microbatch counts nearest to the requested ones. With
// one chunk only a group is refused, because it would have no effect.
std::optional<ScheduleRefusal> refuse_interleaving(std::string_view name, const ScheduleRequest& request) {
  if (request.chunks == 1) {
    if (!request.group_size) return std::nullopt;
    return ScheduleRefusal{
        .problem = fmt::format("{} with one chunk per rank does not use group size {}", name, *request.group_size),
        .help = "use at least 2 chunks, or remove the group size"};
  }
  if (interleaving_group(request)) return std::nullopt;
  const int ranks = request.pipeline_ranks;
  const int microbatches = request.microbatches;
  const int wanted = std::clamp(request.group_size.value_or(ranks), 0, microbatches + 1);
  const std::string groups = nearest_valid(wanted, microbatches, microbatches, [&](int group) {
    return megatron_accepts(ranks, microbatches, group) || pytorch_group(ranks, microbatches) == group;
  });
  if (request.group_size) {
    return ScheduleRefusal{
        .problem = fmt::format("{} cannot use group size {} with {} microbatches and {} pipeline ranks", name,
                               *request.group_size, microbatches, ranks),
        .help = fmt::format("nearest valid group sizes: {}", groups)};
  }
  const std::string counts = nearest_valid(microbatches, static_cast<int>(kMaxMicrobatches), 4 * ranks, [&](int count) {
    return count % ranks == 0 || pytorch_group(ranks, count).has_value();
  });
  return ScheduleRefusal{
      .problem = fmt::format("{} cannot split {} microbatches into equal groups for {} pipeline ranks", name,
                             microbatches, ranks),
      .help = fmt::format("nearest valid microbatch counts: {}; or group size {}", counts, groups)};
}

}  // namespace

// Interleaved 1F1B: Narayanan 2021, arXiv 2104.04473, section 2.2.2.
//
// Rule: forwards go through groups of N microbatches; within a group chunk by chunk, within a chunk microbatch by
// microbatch. Backwards use the same table with the chunks reversed. Rank r executes min(m v, 2 (p - 1 - r) + (v - 1)
// N) forwards, then one forward and one backward in turn, then the remaining backwards. One chunk: 1f1b, as in
// Megatron-LM.
// Left out: the longer warm-up with which Megatron-LM overlaps the experts' all-to-all.
// Peak in flight: min(m v, 2 (p - 1 - r) + (v - 1) N + 1) chunks.
// Makespan: m >= p, c = 0: (m v + p - 1)(F + B), bubble_fraction (p - 1) / (m v + p - 1); N = p, p | m: + 2c (v p - 1);
// m <= p: (v p + m - 1)(F + B) + 2c (v p - 1); with latency exact while c <= min(F, B).
// Constraints: those of Megatron-LM or those of PyTorch (interleaving_group).

namespace {

Program generate_interleaved(const ScheduleRequest& request) {
  if (request.chunks == 1) {
    return one_forward_one_backward("interleaved", request, shortest_warmup(request.pipeline_ranks));
  }
  const int group = *interleaving_group(request);
  return loop_in_groups("interleaved", request, group, [&](std::size_t rank) {
    const std::size_t later_ranks = static_cast<std::size_t>(request.pipeline_ranks) - 1 - rank;
    return Alternation{.warmup = 2 * later_ranks + passes_before_last_chunk(request, group)};
  });
}

std::optional<Ticks> interleaved_makespan(const ScheduleRequest& request, const UniformTimes& times) {
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
  info.where_to_use = "few microbatches per rank, links fast enough for v times the messages";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::group_size};
  info.default_chunks = 2;
  info.refuse = [](const ScheduleRequest& request) { return refuse_interleaving("interleaved", request); };
  info.generate = generate_interleaved;
  info.closed_form_makespan = interleaved_makespan;
  return info;
}

// Interleaved zero bubble: ScheduleInterleavedZeroBubble of torch.distributed.pipelining, which extends ZB-H1 (Qi 2023,
// arXiv 2401.10241, section 2.1) to several chunks per rank.
//
// Rule: the table of microbatches and chunks of interleaved 1F1B, but with a warm-up of min(m v, p - 1 - r + (v - 1) N)
// forwards; then in turn a forward, an input gradient and, from the rank's input gradient r on, the weight gradient
// that belongs to the input gradient r before; then the same without forwards, then the remaining weight gradients.
// Peak in flight: min(m v, (v - 1) N + p) chunks; an activation is held until W.
// Makespan: m v (F + B) + (p - 1)(F + I - W), exact at c = 0 for m >= p while W <= min(F, I).
// Constraints: those of interleaved, which include PyTorch's; with one chunk this is zb-h1.

namespace {

Program generate_interleaved_zb(const ScheduleRequest& request) {
  if (request.chunks == 1) return handcrafted_zero_bubble("interleaved-zb", request, 1);
  const int group = *interleaving_group(request);
  return loop_in_groups("interleaved-zb", request, group, [&](std::size_t rank) {
    const std::size_t later_ranks = static_cast<std::size_t>(request.pipeline_ranks) - 1 - rank;
    return Alternation{.warmup = later_ranks + passes_before_last_chunk(request, group), .delay = rank};
  });
}

std::optional<Ticks> interleaved_zb_makespan(const ScheduleRequest& request, const UniformTimes& times) {
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
  info.where_to_use = "interleaved, if backward passes can be split";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::group_size};
  info.default_chunks = 2;
  info.refuse = [](const ScheduleRequest& request) { return refuse_interleaving("interleaved-zb", request); };
  info.generate = generate_interleaved_zb;
  info.closed_form_makespan = interleaved_zb_makespan;
  return info;
}

// Generalized interleaved schedule (GIS) of PipeOffload: Wan et al. 2025, arXiv 2503.01328.
//
// Rule: interleaved 1F1B with groups of g microbatches, p/2 <= g <= p, and a warm-up shortened to what the first
// backward needs: rank r runs (v - 1) g + p - r forwards, then a backward and a forward in turn, then the remaining
// backwards. Within a group forwards go chunk by chunk, and backwards likewise from the last chunk. I and W of a
// backward run one after the other, so that the previous stage waits for I only.
// Memory: min(m v, (v - 1) g + p - r) chunks. A smaller group holds less and waits longer.
// Makespan at c = 0 for F = I = W and g | m: (3 m v + 2 (p - 1) + (v - 1)(p - g)) F.
// Constraints: g divides m. The default is the smallest such group, which holds the least.

namespace {

int smallest_group(const ScheduleRequest& request) {
  return request.pipeline_ranks - request.pipeline_ranks / 2;
}

std::optional<int> gis_group(const ScheduleRequest& request) {
  if (request.group_size) {
    const int group = *request.group_size;
    const bool valid = smallest_group(request) <= group && group <= request.pipeline_ranks;
    return valid && request.microbatches % group == 0 ? request.group_size : std::nullopt;
  }
  for (int group = smallest_group(request); group <= request.pipeline_ranks; ++group) {
    if (request.microbatches % group == 0) return group;
  }
  return std::nullopt;
}

std::optional<ScheduleRefusal> refuse_gis(const ScheduleRequest& request) {
  if (gis_group(request)) return std::nullopt;
  const int microbatches = request.microbatches;
  const int least = smallest_group(request);
  const int most = request.pipeline_ranks;
  if (request.group_size && (*request.group_size < least || *request.group_size > most)) {
    return ScheduleRefusal{
        .problem = fmt::format("gis on {} pipeline ranks cannot use group size {}", most, *request.group_size),
        .help = fmt::format("use a group size from {} to {} that divides the microbatches", least, most)};
  }
  const std::string groups = request.group_size ? fmt::format("groups of {}", *request.group_size)
                                                : fmt::format("equal groups of {} to {}", least, most);
  const int step = request.group_size.value_or(least);
  const int more = microbatches + step - microbatches % step;
  return ScheduleRefusal{.problem = fmt::format("gis cannot split {} microbatches into {}", microbatches, groups),
                         .help = more > step ? fmt::format("{} or {} microbatches", more - step, more)
                                             : fmt::format("{} microbatches", more)};
}

// One forward fewer than the rule's warm-up, because alternate() begins with a forward.
Program generate_gis(const ScheduleRequest& request) {
  const int group = *gis_group(request);
  return loop_in_groups("gis", request, group, [&](std::size_t rank) {
    const std::size_t later_ranks = static_cast<std::size_t>(request.pipeline_ranks) - 1 - rank;
    return Alternation{.warmup = later_ranks + passes_before_last_chunk(request, group), .delay = 0};
  });
}

std::optional<Ticks> gis_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const bool equal = times.forward == times.weight_gradient && times.forward == times.input_gradient();
  if (times.latency > 0 || !equal) return std::nullopt;
  const Ticks ranks = request.pipeline_ranks;
  const Ticks passes = Ticks{request.microbatches} * request.chunks;
  return (3 * passes + 2 * (ranks - 1) + (request.chunks - 1) * (ranks - *gis_group(request))) * times.forward;
}

}  // namespace

ScheduleInfo gis_schedule() {
  ScheduleInfo info;
  info.name = "gis";
  info.summary = "interleaved with smaller groups: less memory for a longer bubble";
  info.source = "PipeOffload, arXiv 2503.01328";
  info.constraints = "the group size g divides m, p/2 <= g <= p";
  info.peak_in_flight = "min(m v, (v - 1) g + p - r) chunks";
  info.makespan = "(3 m v + 2 (p - 1) + (v - 1)(p - g)) F for F = I = W and c = 0";
  info.where_to_use = "interleaved, if its activations barely exceed the memory";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::group_size};
  info.default_chunks = 2;
  info.refuse = refuse_gis;
  info.generate = generate_gis;
  info.closed_form_makespan = gis_makespan;
  return info;
}

}  // namespace flopcast
