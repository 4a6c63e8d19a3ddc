#include "realrun/executor/transfers.hpp"

namespace flopcast::realrun {

StageNeighbours::StageNeighbours(const Program& program)
    : first_(program.rank_of_stage.size()), last_(program.rank_of_stage.size()) {
  for (const Chain& chain : program.chains) {
    first_.at(static_cast<std::size_t>(chain.first_stage)) = true;
    last_.at(static_cast<std::size_t>(chain.last_stage)) = true;
  }
}

std::optional<MessageKey> StageNeighbours::result_of(const Action& action) const {
  const auto neighbour = [&](int step) { return static_cast<std::uint16_t>(action.stage + step); };
  if (action.kind == ActionKind::kForward) {
    if (is_last(action.stage)) return std::nullopt;
    return MessageKey{neighbour(1), action.microbatch, true};
  }
  if (!is_backward_like(action.kind) || is_first(action.stage)) return std::nullopt;
  return MessageKey{neighbour(-1), action.microbatch, false};
}

std::optional<MessageKey> StageNeighbours::input_of(const Action& action) const {
  if (action.kind == ActionKind::kForward) {
    if (is_first(action.stage)) return std::nullopt;
    return MessageKey{action.stage, action.microbatch, true};
  }
  if (!is_backward_like(action.kind) || is_last(action.stage)) return std::nullopt;
  return MessageKey{action.stage, action.microbatch, false};
}

std::map<int, std::vector<Incoming>> incoming_messages(const Program& program, int rank) {
  const StageNeighbours neighbours(program);
  std::map<int, std::vector<Incoming>> incoming;
  for (int sender = 0; sender < program.rank_count(); ++sender) {
    if (sender == rank) continue;
    for (const Action& action : program.ranks[static_cast<std::size_t>(sender)]) {
      const std::optional<MessageKey> key = neighbours.result_of(action);
      if (key && program.rank_of_stage[key->stage] == rank) incoming[sender].push_back({*key, action});
    }
  }
  return incoming;
}

}  // namespace flopcast::realrun
