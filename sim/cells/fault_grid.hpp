#pragma once

#include <string>

#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"

namespace flopcast {

/// The grid of steps (rows) and ranks (columns) around the fault, the cells at fault in brackets and their rows marked
/// with "<-- here". At most 40 steps and 16 ranks are shown.
std::string render_fault_grid(const Program& program, const ScheduleFault& fault);

std::string render_fault_grid(const CellProgram& program, const ScheduleFault& fault);

}  // namespace flopcast
