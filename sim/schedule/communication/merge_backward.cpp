#include <cstddef>
#include <utility>

#include "sim/schedule/communication/passes.hpp"

namespace flopcast {

namespace {

bool is_split_backward(const Cell& first, const Cell& second) {
  return first.kind == CellKind::kCompute && second.kind == CellKind::kCompute &&
         first.action.kind == ActionKind::kInputGradient && second.action.kind == ActionKind::kWeightGradient &&
         first.action.stage == second.action.stage && first.action.microbatch == second.action.microbatch;
}

}  // namespace

void merge_backward(LoweredProgram& program) {
  for (std::vector<Cell>& cells : program.ranks) {
    std::vector<Cell> result;
    for (const Cell& cell : cells) {
      if (cell.kind == CellKind::kIdle) continue;
      if (!result.empty() && is_split_backward(result.back(), cell)) {
        result.back().action.kind = ActionKind::kBackward;
      } else {
        result.push_back(cell);
      }
    }
    cells = std::move(result);
  }
}

}  // namespace flopcast
