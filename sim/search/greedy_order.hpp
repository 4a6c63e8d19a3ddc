#pragma once

#include <optional>

#include "sim/program/program.hpp"

namespace flopcast {

/// A list schedule: whenever a rank is free it runs what is ready, backwards before forwards, earlier microbatches
/// before later ones, deeper stages before shallower ones. A transfer takes nothing.
struct GreedyRule {
  int microbatches = 1;    ///< of each chain
  int together = 1;        ///< so many microbatches run their forwards in a row, as if they were one; divides the above
  int most_in_flight = 1;  ///< groups of a chain between their first forward and their last backward
  int forward = 1;         ///< times of one microbatch on one stage
  int backward = 2;
  /// Activations that a rank holds at once; a forward leaves room for one of each of the rank's later stages, so that
  /// what was let in always gets through. At least the stages a rank has. Absent: no limit.
  std::optional<int> most_held = std::nullopt;
};

/// Gives an empty program its actions. Time and memory are linear in their number, but for a logarithm.
void fill_greedily(Program& program, const GreedyRule& rule);

}  // namespace flopcast
