#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/schedule/validate.hpp"

namespace flopcast {

/// A rank that can never execute its next cell, and whose cell it waits for.
struct BlockedCell {
  SchedulePlace place;
  std::string cell;
  std::string awaited;
  int awaited_rank = 0;
};

/// The circle at the end of `waits`, each of which waits for the next and the last for the one at `begin`.
ScheduleFault describe_circle(const std::vector<BlockedCell>& waits, std::size_t begin);

/// The ranks that wait for each other in a circle, if any. Expects a program without any of the other faults.
std::optional<ScheduleFault> find_deadlock(const Program& program);

}  // namespace flopcast
