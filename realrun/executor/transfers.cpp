#include "realrun/executor/transfers.hpp"

namespace flopcast::realrun {

namespace {

std::optional<MessageKey> message_of(const std::optional<StageTransfer>& transfer) {
  if (!transfer) return std::nullopt;
  return MessageKey{static_cast<std::uint16_t>(transfer->to_stage), transfer->microbatch, transfer->is_forward()};
}

}  // namespace

std::optional<MessageKey> input_of(const Needs& needs, const Action& action) {
  return message_of(needs.needed_by(action));
}

std::optional<MessageKey> result_of(const Needs& needs, const Action& action) {
  return message_of(needs.produced_by(action));
}

std::map<int, std::vector<Incoming>> incoming_messages(const Program& program, int rank) {
  const Needs needs(program);
  std::map<int, std::vector<Incoming>> incoming;
  for (int sender = 0; sender < program.rank_count(); ++sender) {
    if (sender == rank) continue;
    for (const Action& action : program.ranks[static_cast<std::size_t>(sender)]) {
      const std::optional<MessageKey> key = result_of(needs, action);
      if (key && program.rank_of_stage[key->stage] == rank) incoming[sender].push_back({*key, action});
    }
  }
  return incoming;
}

}  // namespace flopcast::realrun
