#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/schedule/communication/cell.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// A schedule whose communications stand in the order of its ranks, as a training program executes it. A Program holds
/// only the compute actions: whoever executes that one derives the communications himself.
struct LoweredProgram {
  std::string schedule;                  ///< the catalogue name, or the file it was read from
  std::vector<std::vector<Cell>> ranks;  ///< ranks[r][step]
  std::vector<int> rank_of_stage;        ///< as in Program
  std::vector<Chain> chains;             ///< as in Program

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  std::size_t communication_count() const;
  /// By stage: 1 + the largest microbatch index of its compute actions.
  std::vector<std::size_t> microbatches_by_stage() const;
};

/// The same order, one cell a compute action or overlapped pair, nothing else.
LoweredProgram as_cells(const Program& program);
/// The compute actions in their order; communications and idle cells are dropped.
Program compute_of(const LoweredProgram& lowered);

}  // namespace flopcast
