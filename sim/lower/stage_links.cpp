#include "sim/lower/stage_links.hpp"

#include <cstddef>

#include "model/error/error.hpp"

namespace flopcast {

std::vector<StageLinks> link_stages(const Program& program, const StepTimes& times) {
  const auto stages = static_cast<std::size_t>(program.stage_count());
  FLOPCAST_CHECK(times.stages.size() == stages);
  FLOPCAST_CHECK(times.boundaries.size() + 1 >= stages);
  std::vector<StageLinks> links(stages);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    FLOPCAST_CHECK(program.rank_of_stage[stage] >= 0 && program.rank_of_stage[stage] < program.rank_count());
    links[stage].rank = static_cast<std::uint32_t>(program.rank_of_stage[stage]);
    links[stage].replicas = static_cast<std::uint32_t>(program.replicas(static_cast<int>(stage)));
  }
  for (const Chain& chain : program.chains) {
    FLOPCAST_CHECK(0 <= chain.first_stage && chain.first_stage <= chain.last_stage);
    FLOPCAST_CHECK(static_cast<std::size_t>(chain.last_stage) < stages);
    for (auto stage = static_cast<std::size_t>(chain.first_stage); stage < static_cast<std::size_t>(chain.last_stage);
         ++stage) {
      StageLinks& lower = links[stage];
      StageLinks& upper = links[stage + 1];
      lower.has_next = upper.has_previous = true;
      lower.next_rank = upper.rank;
      upper.previous_rank = lower.rank;
      lower.next_replicas = upper.replicas;
      upper.previous_replicas = lower.replicas;
      if (lower.rank == upper.rank) continue;
      lower.to_next = upper.from_previous = times.boundaries[stage].forward;
      upper.to_previous = lower.from_next = times.boundaries[stage].backward;
    }
  }
  return links;
}

}  // namespace flopcast
