#include "sim/program/program.hpp"

#include <algorithm>
#include <cstddef>

namespace flopcast {

std::size_t Program::action_count() const {
  std::size_t count = 0;
  for (const std::vector<Action>& actions : ranks) count += actions.size();
  return count;
}

int Program::microbatches_of(const Chain& chain) const {
  std::uint32_t count = 0;
  const int first = rank_of_stage.at(static_cast<std::size_t>(chain.first_stage));
  for (int rank = first; rank < first + replicas(chain.first_stage); ++rank) {
    for (const Action& action : ranks.at(static_cast<std::size_t>(rank))) {
      if (action.stage == chain.first_stage) count = std::max(count, action.microbatch + 1);
    }
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

std::vector<int> infer_replicas(const Program& program) {
  std::vector<int> last_rank(program.rank_of_stage);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) last_rank[action.stage] = static_cast<int>(rank);
  }
  if (last_rank == program.rank_of_stage) return {};
  Program guess;
  guess.rank_of_stage = program.rank_of_stage;
  for (std::size_t stage = 0; stage < last_rank.size(); ++stage) {
    guess.replicas_of_stage.push_back(last_rank[stage] - program.rank_of_stage[stage] + 1);
  }
  std::vector<int> replicas(guess.replicas_of_stage);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) {
      if (guess.rank_of(action.stage, action.microbatch) != static_cast<int>(rank)) replicas[action.stage] = 1;
    }
  }
  const bool none = std::all_of(replicas.begin(), replicas.end(), [](int count) { return count == 1; });
  return none ? std::vector<int>() : replicas;
}

std::vector<int> ranks_of_chain(const Program& program, const Chain& chain) {
  std::vector<int> ranks(program.rank_of_stage.begin() + chain.first_stage,
                         program.rank_of_stage.begin() + chain.last_stage + 1);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

namespace {

int change_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return 1;
    case ActionKind::kInputGradient:
      return 0;
    case ActionKind::kBackward:
    case ActionKind::kWeightGradient:
      break;
  }
  return -1;
}

}  // namespace

std::vector<int> peak_in_flight(const Program& program) {
  std::vector<int> peaks;
  for (const std::vector<Action>& actions : program.ranks) {
    int held = 0;
    int peak = 0;
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const int change = change_of(actions[index].kind);
      const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
      const int partner_change = pair ? change_of(actions[++index].kind) : 0;
      const bool frees_first = pair && program.frees_in_pairs;
      const int most = frees_first ? change + partner_change : std::max(change, 0) + std::max(partner_change, 0);
      peak = std::max(peak, held + most);
      held += change + partner_change;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace flopcast
