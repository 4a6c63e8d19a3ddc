#pragma once

#include "sim/schedule/program.hpp"

namespace flopcast {

/// A list schedule: whenever a rank is free it runs what is ready, backwards before forwards, earlier microbatches
/// before later ones, deeper stages before shallower ones. A forward takes 1, a backward 2, a transfer nothing.
struct GreedyRule {
  int microbatches = 1;    ///< of each chain
  int together = 1;        ///< so many microbatches run their forwards in a row, as if they were one; divides the above
  int most_in_flight = 1;  ///< groups of a chain between their first forward and their last backward
};

/// Gives an empty program its actions. Time and memory are linear in their number, but for a logarithm.
void fill_greedily(Program& program, const GreedyRule& rule);

}  // namespace flopcast
