#pragma once

#include <vector>

#include "sim/cells/cell.hpp"

namespace flopcast {

// The passes by which torch.distributed.pipelining (schedules.py, torch 2.14.1) turns a compute order into one with
// communications. Each takes cells and gives cells; given PyTorch's input they give its output, cell by cell.

/// How many stages PyTorch keeps unsharded per rank.
inline constexpr int kActiveStages = 3;

/// Weights shared by several ranks (FSDP) are gathered ahead of use: before each cell, the next `active_stages`
/// different stages of the rank are looked up; active stages that are not among them are resharded, in ascending order,
/// then those not yet active are unsharded in the order of their use. What is active at the end is resharded. A pair
/// may bring the count to one more. Idle cells are dropped.
void add_unshard_reshard(CellProgram& program, int active_stages = kActiveStages);

/// A stage's gradients are reduced right after its last microbatch's B or W. Idle cells are dropped.
void add_gradient_reductions(CellProgram& program);

/// Sends and receives wherever neighbouring stages of a chain are on different ranks. The ranks take turns of one cell;
/// a compute cell is taken when all it needs is there. Its sends follow it at once, and each receive is appended to the
/// receiver's order at that moment: the earliest place that keeps the transfers of two ranks in the same order on both.
/// Expects a program without a fault.
void add_send_receive(CellProgram& program);

/// Moves each receive to right before the action that consumes it, so that its buffer lives shorter. Of two ranks, the
/// lower one still receives what is due from its peer before it sends to it. The transfers of two ranks are not in the
/// same order on both any more (find_transfer_mismatch).
void defer_receives(CellProgram& program);

/// I directly followed by the W of the same stage and microbatch becomes B. Idle cells are dropped.
void merge_backward(CellProgram& program);

struct CommunicationOptions {
  bool unshard_reshard = true;  ///< weights are shared by several ranks (FSDP)
  bool defer_receives = false;
};

/// The program with its communications as torch.distributed.pipelining dumps them (`_dump_csv(format="compute_comms")`,
/// torch 2.14.1): UNSHARD and RESHARD, REDUCE_GRAD, then sends and receives. Left out: transfers that PyTorch's runtime
/// fuses. Expects a program without a fault.
CellProgram add_communication(const Program& program, const CommunicationOptions& options);

}  // namespace flopcast
