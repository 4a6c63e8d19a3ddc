#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/program.hpp"

namespace flopcast {

/// A cell of a schedule. Steps count the cells of a rank from 0; an overlapped pair is one cell.
struct SchedulePlace {
  int rank = 0;
  int step = 0;
};

/// Why a program cannot be executed.
struct ScheduleFault {
  std::optional<int> rank;  ///< absent when no rank in particular is at fault
  std::optional<int> step;  ///< absent when something is missing rather than wrong
  std::string cell;         ///< what stands at that step
  std::string reason;
  std::vector<SchedulePlace> cycle;  ///< deadlock: the cells that wait for each other in a circle
};

/// The first fault of a program, nothing when it can be executed. In this order: chains cover the stages; every rank
/// has work, every stage belongs to one rank, or to replicas that take its microbatches in turn and do nothing else;
/// overlapped pairs are a forward and a B or I; all stages of a chain have the same microbatches 0 .. m-1; on each
/// stage F comes once, then B once or I and W once in this order; no rank waits forever, given that F(s) needs F(s-1),
/// B and I of s need F(s) and the B or I of s+1, W(s) needs I(s). Time and memory are linear in the number of actions.
std::optional<ScheduleFault> find_fault(const Program& program);

/// "rank 1, step 3 (1B0): …"
std::string render_fault(const ScheduleFault& fault);

/// "0-3,4-7" where a faulty program of one chain has no fault as two chains of half the stages each, the second one
/// running through the ranks in the opposite direction; nothing otherwise. A text cannot say which of the two was
/// meant, so this is a hint and not a reading.
std::optional<std::string> hint_two_chains(const Program& program);

}  // namespace flopcast
