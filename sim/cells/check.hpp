#pragma once

#include <optional>
#include <string>

#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"

namespace flopcast {

/// The first fault of a schedule with communications, nothing when it can be executed. Steps count all cells of a rank,
/// idle ones too. In this order: the faults of its compute actions; every send and receive belongs to two neighbouring
/// stages on different ranks, comes once and has its other half; a send follows the action that makes what it sends, a
/// receive precedes the one that consumes it; a stage is unsharded while it computes, and unsharding and resharding
/// alternate; gradients are reduced once, after the last B or W of the stage; no rank waits forever, given that sends
/// and receives return at once and an action waits until what it receives has been sent. A program without any SEND and
/// RECV (UNSHARD and RESHARD, REDUCE_GRAD) leaves them to whoever executes it, and none is missing.
std::optional<ScheduleFault> find_fault(const CellProgram& program);

/// The first transfer that two ranks do not list in the same order; nothing when all do. Where sends and receives of
/// two ranks run one after the other, without tags, as NCCL runs them, such a program hangs or swaps tensors. Expects a
/// program without a fault.
std::optional<ScheduleFault> find_transfer_mismatch(const CellProgram& program);

/// The grid of steps (rows) and ranks (columns) around the fault, the cells at fault in brackets and their rows marked
/// with "<-- here". At most 40 steps and 16 ranks are shown.
std::string render_fault_grid(const Program& program, const ScheduleFault& fault);

std::string render_fault_grid(const CellProgram& program, const ScheduleFault& fault);

}  // namespace flopcast
