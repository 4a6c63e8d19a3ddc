#include "planner/sweep/division.hpp"

#include <algorithm>

#include "model/error/error.hpp"

namespace flopcast {

Division::Division(const std::vector<std::size_t>& missing, int rank, int size) {
  FLOPCAST_CHECK(size > 0 && rank >= 0 && rank < size);
  const auto players = static_cast<std::size_t>(size);
  hands_.resize(players);
  for (std::size_t card = 0; card < missing.size(); ++card) {
    const std::size_t player = card % players;
    hands_[(player + players - static_cast<std::size_t>(rank)) % players].push_back(missing[card]);
  }
  // A process takes its own from the front, others' from the end: both are taken off the end here.
  std::reverse(hands_.front().begin(), hands_.front().end());
}

bool Division::left() const {
  return std::any_of(hands_.begin(), hands_.end(), [](const auto& hand) { return !hand.empty(); });
}

std::vector<std::size_t> Division::next(std::size_t most, const std::function<bool(std::size_t)>& is_open) {
  std::vector<std::size_t> parts;
  const auto hand = std::find_if(hands_.begin(), hands_.end(), [](const auto& one) { return !one.empty(); });
  while (hand != hands_.end() && !hand->empty() && parts.size() < most) {
    if (is_open(hand->back())) parts.push_back(hand->back());
    hand->pop_back();
  }
  return parts;
}

}  // namespace flopcast
