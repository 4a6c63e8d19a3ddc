#include "sim/schedule/v_map.hpp"

#include <fmt/format.h>

namespace flopcast {

Program empty_v(std::string_view schedule, const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  Program program;
  program.schedule = std::string(schedule);
  program.ranks.resize(static_cast<std::size_t>(ranks));
  for (int stage = 0; stage < 2 * ranks; ++stage) {
    program.rank_of_stage.push_back(stage < ranks ? stage : 2 * ranks - 1 - stage);
  }
  program.chains = {Chain{.first_stage = 0, .last_stage = 2 * ranks - 1}};
  return program;
}

std::optional<ScheduleRefusal> refuse_all_but_two_chunks(std::string_view name, const ScheduleRequest& request) {
  if (request.chunks == 2) return std::nullopt;
  return ScheduleRefusal{.problem = fmt::format("{} has two chunks per rank, not {}", name, request.chunks),
                         .help = "chunks 2: the V goes down the ranks and back once"};
}

}  // namespace flopcast
