#include "sim/schedule/communication/lowering.hpp"

#include "sim/schedule/communication/passes.hpp"

namespace flopcast {

LoweredProgram lower_communication(const Program& program, const LoweringOptions& options) {
  LoweredProgram lowered = as_cells(program);
  if (options.unshard_reshard) add_unshard_reshard(lowered);
  add_gradient_reductions(lowered);
  add_send_receive(lowered);
  if (options.defer_receives) defer_receives(lowered);
  return lowered;
}

}  // namespace flopcast
