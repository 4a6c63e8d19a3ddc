#pragma once

#include "sim/schedule/communication/lowered_program.hpp"

namespace flopcast {

/// What PyTorch's `_simulate_comms_compute` shows of a lowered schedule, for tests only: every cell, transfers too,
/// takes one step of its rank, and a rank may still be unblocked by a higher one in the same step. Not comparable with
/// any model of time. Ends early where no rank can go on; a program with pairs, UNSHARD, RESHARD or REDUCE_GRAD is
/// outside what PyTorch simulates.
LoweredProgram in_unit_steps(const LoweredProgram& program);
int longest_rank(const LoweredProgram& program);

}  // namespace flopcast
