#pragma once

#include <map>
#include <optional>
#include <vector>

#include "realrun/transport/transport.hpp"
#include "sim/program/needs.hpp"

namespace flopcast::realrun {

/// The message that carries what the action needs from another stage, or makes for one; nothing where it needs or makes
/// none.
std::optional<MessageKey> input_of(const Needs& needs, const Action& action);
std::optional<MessageKey> result_of(const Needs& needs, const Action& action);

/// A message on its way to a rank.
struct Incoming {
  MessageKey key;
  Action produced_by;
};
/// By sending rank, in the order in which it sends them: the only order in which both ends can post their halves on a
/// transport without message keys.
std::map<int, std::vector<Incoming>> incoming_messages(const Program& program, int rank);

}  // namespace flopcast::realrun
