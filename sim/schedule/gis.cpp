// Generalized interleaved schedule (GIS) of PipeOffload: Wan et al. 2025, arXiv 2503.01328.
//
// Rule: interleaved 1F1B with groups of g microbatches, p/2 <= g <= p, and a warm-up shortened to what the first
// backward needs: rank r runs (v - 1) g + p - r forwards, then a backward and a forward in turn, then the backwards
// that are left. Within a group forwards go chunk by chunk, backwards likewise from the last chunk. I and W of a
// backward run one after the other, so that the previous stage waits for I only. Memory: min(m v, (v - 1) g + p - r)
// chunks. A smaller group holds less and waits longer. Makespan at c = 0 for F = I = W and g | m: (3 m v + 2 (p - 1) +
// (v - 1)(p - g)) F. Constraints: g divides m. The default is the smallest such group, which holds the least.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

int smallest_group(const ScheduleRequest& request) {
  return request.pipeline_ranks - request.pipeline_ranks / 2;
}

std::optional<int> group_of(const ScheduleRequest& request) {
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

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  if (group_of(request)) return std::nullopt;
  const int microbatches = request.microbatches;
  const int least = smallest_group(request);
  const int most = request.pipeline_ranks;
  if (request.group_size && (*request.group_size < least || *request.group_size > most)) {
    return ScheduleRefusal{
        .problem = fmt::format("gis on {} pipeline ranks cannot use group size {}", most, *request.group_size),
        .help = fmt::format("group sizes {} to {} that divide the microbatches", least, most)};
  }
  const std::string groups = request.group_size ? fmt::format("groups of {}", *request.group_size)
                                                : fmt::format("equal groups of {} to {}", least, most);
  const int step = request.group_size.value_or(least);
  const int more = microbatches + step - microbatches % step;
  return ScheduleRefusal{.problem = fmt::format("gis cannot split {} microbatches into {}", microbatches, groups),
                         .help = more > step ? fmt::format("{} or {} microbatches", more - step, more)
                                             : fmt::format("{} microbatches", more)};
}

struct Slot {
  int microbatch = 0;
  int chunk = 0;
};

// The index-th pass of a rank: groups one after the other, in a group chunk by chunk.
Slot slot_of(std::size_t index, std::size_t group, std::size_t chunks) {
  const std::size_t of_groups = group * chunks;
  const std::size_t within = index % of_groups;
  return {static_cast<int>(index / of_groups * group + within % group), static_cast<int>(within / group)};
}

Program generate(const ScheduleRequest& request) {
  Program program = empty_loop("gis", request);
  const auto group = static_cast<std::size_t>(*group_of(request));
  const auto chunks = static_cast<std::size_t>(request.chunks);
  const std::size_t passes = static_cast<std::size_t>(request.microbatches) * chunks;
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(rank)];
    actions.reserve(3 * passes);
    const auto push_forward = [&](std::size_t index) {
      const Slot slot = slot_of(index, group, chunks);
      actions.push_back(forward_action(slot.chunk * request.pipeline_ranks + rank, slot.microbatch));
    };
    const auto push_backward = [&](std::size_t index) {
      const Slot slot = slot_of(index, group, chunks);
      const int chunk = request.chunks - 1 - slot.chunk;
      for (const ActionKind half : {ActionKind::kInputGradient, ActionKind::kWeightGradient}) {
        actions.push_back(backward_action(chunk * request.pipeline_ranks + rank, slot.microbatch));
        actions.back().kind = half;
      }
    };
    const std::size_t warmup =
        std::min(passes, (chunks - 1) * group + static_cast<std::size_t>(request.pipeline_ranks - rank));
    for (std::size_t index = 0; index < warmup; ++index) push_forward(index);
    for (std::size_t index = 0; index < passes; ++index) {
      push_backward(index);
      if (index + warmup < passes) push_forward(index + warmup);
    }
  }
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const bool equal = times.forward == times.weight_gradient && times.forward == times.input_gradient();
  if (times.latency > 0 || !equal) return std::nullopt;
  const Ticks ranks = request.pipeline_ranks;
  const Ticks passes = Ticks{request.microbatches} * request.chunks;
  return (3 * passes + 2 * (ranks - 1) + (request.chunks - 1) * (ranks - *group_of(request))) * times.forward;
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
  info.where_to_use = "interleaved where its activations just do not fit";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::group_size};
  info.default_chunks = 2;
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
