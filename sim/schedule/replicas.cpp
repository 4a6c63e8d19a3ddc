#include "sim/schedule/replicas.hpp"

#include <algorithm>
#include <cstddef>

namespace flopcast {

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

}  // namespace flopcast
