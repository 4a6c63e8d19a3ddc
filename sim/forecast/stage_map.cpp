#include "sim/forecast/stage_map.hpp"

#include <cstddef>
#include <vector>

namespace flopcast {

namespace {

// StageMap::passes_in_a_row: a stage has all its passes of a direction in a row when its rank turns to it once. Empty
// unless that holds for all: a program gathers in one way.
std::vector<int> passes_in_a_row(const Program& program) {
  const auto stages = static_cast<std::size_t>(program.stage_count());
  std::vector<int> forward_rows(stages, 0);
  std::vector<int> backward_rows(stages, 0);
  for (const std::vector<Action>& actions : program.ranks) {
    const Action* before = nullptr;
    for (const Action& action : actions) {
      const bool forward = action.kind == ActionKind::kForward;
      const bool continues =
          before != nullptr && before->stage == action.stage && (before->kind == ActionKind::kForward) == forward;
      if (!continues) ++(forward ? forward_rows : backward_rows)[action.stage];
      before = &action;
    }
  }
  std::vector<int> passes(stages, 1);
  for (const Chain& chain : program.chains) {
    const int all = program.microbatches_of(chain) / program.slices_per_microbatch;
    for (auto stage = static_cast<std::size_t>(chain.first_stage); stage <= static_cast<std::size_t>(chain.last_stage);
         ++stage) {
      if (forward_rows[stage] != 1 || backward_rows[stage] != 1) return {};
      passes[stage] = all;
    }
  }
  return passes;
}

}  // namespace

StageMap stage_map_of(const Program& program) {
  StageMap map;
  map.rank_of_stage = program.rank_of_stage;
  map.model_stages = program.stages_per_chain();
  map.passes_in_a_row = passes_in_a_row(program);
  return map;
}

}  // namespace flopcast
