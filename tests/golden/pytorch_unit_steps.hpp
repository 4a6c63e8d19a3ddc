#pragma once

#include "sim/cells/cell.hpp"

namespace flopcast {

/// The view of a lowered schedule in PyTorch's `_simulate_comms_compute`, only for tests: every cell, including
/// transfers, takes one step of its rank, and a rank may be unblocked by a higher one in the same step. Not comparable
/// with any model of time. Ends early if no rank can continue; PyTorch does not simulate programs with pairs, UNSHARD,
/// RESHARD or REDUCE_GRAD.
CellProgram in_unit_steps(const CellProgram& program);
int longest_rank(const CellProgram& program);

}  // namespace flopcast
