#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/flow/flow_program.hpp"

namespace flopcast {

/// A program in which one flow stands for all that are alike, and one link for all links alike.
struct FlowClasses {
  std::vector<std::uint32_t> class_of;       ///< by flow of the whole program, a flow of `program`
  std::vector<std::uint32_t> link_class_of;  ///< by link of the whole program, a link of `program`
  FlowProgram program;
};

/// Colours flows and links until nothing splits: flows alike have the same bytes, start, cap, colours of links with
/// weights, and colours of predecessors; links alike have the same capacity and, for each colour of flows, the same sum
/// of weights. Filling then gives all flows of a class the same rate at every moment, so one of them, using a link as
/// often as its whole class uses one, ends when each of them does in the whole program (Berkholz, Bonsma & Grohe, Tight
/// lower and upper bounds for the complexity of canonical colour refinement, 2017, for the partition). Colours are
/// hashes of 64 bits; the partition that they give is checked.
/// Predecessors may wait for each other in circles: such a program says who is alike, and never ends.
/// Nothing when more than half of the flows have no like.
std::optional<FlowClasses> refine(const FlowProgram& program);

}  // namespace flopcast
