#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/schedule/action.hpp"

namespace flopcast {

/// Consecutive stages that activations flow through, first to last. A bidirectional schedule (DualPipe, Chimera) has
/// two chains, each a full copy of the model.
struct Chain {
  int first_stage = 0;
  int last_stage = 0;
};

/// A schedule as data: which actions every pipeline rank executes, in which order. The simulator, CPU ranks and GPU
/// ranks all execute the same Program.
struct Program {
  std::string schedule;                    ///< the catalogue name, or the file it was read from
  std::vector<std::vector<Action>> ranks;  ///< ranks[r]: the actions of pipeline rank r in order
  std::vector<int> rank_of_stage;          ///< stage -> pipeline rank
  std::vector<Chain> chains;               ///< in order of stages; together they cover every stage once
  /// 1, or into how many slices of tokens each microbatch is cut: the actions' "microbatches" are then slices, slice j
  /// of microbatch k has the number k * slices_per_microbatch + j, and times, activations and messages of an action are
  /// those of one slice.
  int slices_per_microbatch = 1;
  bool asynchronous = false;  ///< never flushes: weights are updated while the pipeline stays full

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  std::size_t action_count() const;
  /// 1 + the largest microbatch index of the chain; of slices, where microbatches are cut.
  int microbatches_of(const Chain& chain) const;
  /// Whole microbatches of all chains together.
  int microbatch_count() const;
  /// Stages that one microbatch passes: those of a chain, which are all as long.
  int stages_per_chain() const;
};

/// Which cell of its rank an action stands in, from 0: an overlapped pair is one cell.
int step_of(const std::vector<Action>& actions, std::size_t index);

}  // namespace flopcast
