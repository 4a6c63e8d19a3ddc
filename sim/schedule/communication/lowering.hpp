#pragma once

#include "sim/schedule/communication/lowered_program.hpp"

namespace flopcast {

struct LoweringOptions {
  bool unshard_reshard = true;  ///< weights are shared by several ranks (FSDP)
  bool defer_receives = false;
};

/// The program with its communications as torch.distributed.pipelining dumps them (`_dump_csv(format="compute_comms")`,
/// torch 2.14.1): UNSHARD and RESHARD, REDUCE_GRAD, then sends and receives. Left out: transfers that PyTorch's runtime
/// fuses. Expects a program without a fault.
LoweredProgram lower_communication(const Program& program, const LoweringOptions& options);

}  // namespace flopcast
