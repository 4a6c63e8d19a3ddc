#pragma once

#include <map>
#include <optional>
#include <vector>

#include "realrun/transport/transport.hpp"
#include "sim/program/program.hpp"

namespace flopcast::realrun {

/// Between which stages results travel, from the chains of a program.
class StageNeighbours {
 public:
  explicit StageNeighbours(const Program& program);
  bool is_first(int stage) const { return first_[static_cast<std::size_t>(stage)]; }
  bool is_last(int stage) const { return last_[static_cast<std::size_t>(stage)]; }
  /// Whom the action's result is for; nothing for a weight gradient and at the ends of a chain.
  std::optional<MessageKey> result_of(const Action& action) const;
  /// What the action waits for from another stage.
  std::optional<MessageKey> input_of(const Action& action) const;

 private:
  std::vector<bool> first_;
  std::vector<bool> last_;
};

/// A message on its way to a rank.
struct Incoming {
  MessageKey key;
  Action produced_by;
};
/// By sending rank, in the order in which it sends them: the only order in which both ends can post their halves on a
/// transport without message keys.
std::map<int, std::vector<Incoming>> incoming_messages(const Program& program, int rank);

}  // namespace flopcast::realrun
