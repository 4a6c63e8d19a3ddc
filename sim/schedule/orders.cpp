#include "sim/schedule/orders.hpp"

#include <algorithm>
#include <cstddef>

namespace flopcast {

Program empty_loop(std::string_view schedule, const ScheduleRequest& request) {
  const auto rank_count = static_cast<std::size_t>(request.pipeline_ranks);
  const std::size_t stage_count = rank_count * static_cast<std::size_t>(request.chunks);
  Program program;
  program.schedule = std::string(schedule);
  program.ranks.resize(rank_count);
  const std::size_t actions_per_rank =
      2 * static_cast<std::size_t>(request.microbatches) * static_cast<std::size_t>(request.chunks);
  for (std::vector<Action>& actions : program.ranks) actions.reserve(actions_per_rank);
  program.rank_of_stage.reserve(stage_count);
  for (std::size_t stage = 0; stage < stage_count; ++stage) {
    program.rank_of_stage.push_back(static_cast<int>(stage % rank_count));
  }
  program.chains = {Chain{.first_stage = 0, .last_stage = static_cast<int>(stage_count) - 1}};
  return program;
}

Program one_forward_one_backward(std::string_view schedule, const ScheduleRequest& request,
                                 const std::vector<int>& warmup) {
  Program program = empty_loop(schedule, request);
  const int count = request.microbatches;
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(rank)];
    const int ahead = std::min(warmup[static_cast<std::size_t>(rank)], count);
    for (int microbatch = 0; microbatch < ahead; ++microbatch) actions.push_back(forward_action(rank, microbatch));
    for (int microbatch = ahead; microbatch < count; ++microbatch) {
      actions.push_back(forward_action(rank, microbatch));
      actions.push_back(backward_action(rank, microbatch - ahead));
    }
    for (int microbatch = count - ahead; microbatch < count; ++microbatch) {
      actions.push_back(backward_action(rank, microbatch));
    }
  }
  return program;
}

std::vector<int> shortest_warmup(int pipeline_ranks) {
  std::vector<int> warmup;
  warmup.reserve(static_cast<std::size_t>(pipeline_ranks));
  for (int rank = 0; rank < pipeline_ranks; ++rank) warmup.push_back(pipeline_ranks - 1 - rank);
  return warmup;
}

std::optional<Ticks> one_forward_one_backward_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks microbatches = request.microbatches;
  const Ticks waits = (std::max<Ticks>(0, microbatches - 2) * (ranks - 1) + ranks - 1) / ranks;
  return (microbatches + ranks - 1) * (times.forward + times.backward) + 2 * times.latency * (ranks - 1 + waits);
}

std::optional<Ticks> eager_1f1b_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks both = times.forward + times.backward;
  if (2 * times.latency > both) return std::nullopt;
  const Ticks ranks = request.pipeline_ranks;
  return (request.microbatches + ranks - 1) * both + 2 * (ranks - 1) * times.latency;
}

}  // namespace flopcast
