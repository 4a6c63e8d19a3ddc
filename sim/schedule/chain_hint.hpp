#pragma once

#include <optional>
#include <string>

#include "sim/schedule/program.hpp"

namespace flopcast {

/// "0-3,4-7" where a faulty program of one chain has no fault as two chains of half the stages each, the second one
/// running through the ranks in the opposite direction; nothing otherwise. A text cannot say which of the two was
/// meant, so this is a hint and not a reading.
std::optional<std::string> hint_two_chains(const Program& program);

}  // namespace flopcast
