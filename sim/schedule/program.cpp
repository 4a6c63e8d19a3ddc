#include "sim/schedule/program.hpp"

#include <algorithm>

namespace flopcast {

std::size_t Program::action_count() const {
  std::size_t count = 0;
  for (const std::vector<Action>& actions : ranks) count += actions.size();
  return count;
}

int Program::microbatches_of(const Chain& chain) const {
  std::uint32_t count = 0;
  for (const Action& action :
       ranks.at(static_cast<std::size_t>(rank_of_stage.at(static_cast<std::size_t>(chain.first_stage))))) {
    if (action.stage == chain.first_stage) count = std::max(count, action.microbatch + 1);
  }
  return static_cast<int>(count);
}

int Program::microbatch_count() const {
  int count = 0;
  for (const Chain& chain : chains) count += microbatches_of(chain);
  return count / slices_per_microbatch;
}

int Program::stages_per_chain() const {
  return chains.front().last_stage - chains.front().first_stage + 1;
}

int step_of(const std::vector<Action>& actions, std::size_t index) {
  int step = 0;
  for (std::size_t before = 0; before < index; ++before) step += actions[before].overlaps_next ? 0 : 1;
  return step;
}

}  // namespace flopcast
