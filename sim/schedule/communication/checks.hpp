#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "sim/schedule/communication/lowered_program.hpp"
#include "sim/schedule/validate.hpp"

namespace flopcast {

// The parts of find_fault(LoweredProgram), in its order. All expect compute actions without a fault, deadlock apart.

std::optional<ScheduleFault> find_transfer_fault(const LoweredProgram& program);
/// UNSHARD, RESHARD and REDUCE_GRAD.
std::optional<ScheduleFault> find_stage_fault(const LoweredProgram& program);
std::optional<ScheduleFault> find_communication_deadlock(const LoweredProgram& program);

/// Whether the program lists sends or receives at all.
bool lists_transfers(const LoweredProgram& program);
ScheduleFault fault_at_cell(const LoweredProgram& program, int rank, std::size_t step, std::string reason);

}  // namespace flopcast
