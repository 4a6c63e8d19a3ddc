#include "sim/program/request.hpp"

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

Program empty_zigzag(std::string_view schedule, const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  Program program;
  program.schedule = std::string(schedule);
  program.ranks.resize(static_cast<std::size_t>(ranks));
  for (int chunk = 0; chunk < request.chunks; ++chunk) {
    for (int step = 0; step < ranks; ++step) {
      program.rank_of_stage.push_back(chunk % 2 == 0 ? step : ranks - 1 - step);
    }
  }
  program.chains = {Chain{.first_stage = 0, .last_stage = program.stage_count() - 1}};
  return program;
}

Program empty_two_chains(std::string_view schedule, const ScheduleRequest& request) {
  ScheduleRequest two = request;
  two.chunks = 2;
  Program program = empty_zigzag(schedule, two);
  const int ranks = request.pipeline_ranks;
  program.chains = {Chain{.first_stage = 0, .last_stage = ranks - 1},
                    Chain{.first_stage = ranks, .last_stage = 2 * ranks - 1}};
  return program;
}

}  // namespace flopcast
