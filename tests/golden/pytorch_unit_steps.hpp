#pragma once

#include "sim/cells/cell.hpp"

namespace flopcast {

/// What PyTorch's `_simulate_comms_compute` shows of a lowered schedule, for tests only: every cell, transfers too,
/// takes one step of its rank, and a rank may still be unblocked by a higher one in the same step. Not comparable with
/// any model of time. Ends early where no rank can go on; a program with pairs, UNSHARD, RESHARD or REDUCE_GRAD is
/// outside what PyTorch simulates.
CellProgram in_unit_steps(const CellProgram& program);
int longest_rank(const CellProgram& program);

}  // namespace flopcast
