#include <cstddef>
#include <utility>

#include "sim/schedule/communication/passes.hpp"

namespace flopcast {

namespace {

constexpr bool completes_gradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

}  // namespace

void add_gradient_reductions(LoweredProgram& program) {
  // By stage: how many microbatches have yet to add to its gradients.
  std::vector<std::size_t> due(program.rank_of_stage.size(), 0);
  for (const std::vector<Cell>& cells : program.ranks) {
    for (const Cell& cell : cells) {
      for_each_action(cell, [&due](const Action& action) { due[action.stage] += completes_gradient(action.kind); });
    }
  }
  for (std::vector<Cell>& cells : program.ranks) {
    std::vector<Cell> result;
    for (const Cell& cell : cells) {
      if (cell.kind == CellKind::kIdle) continue;
      result.push_back(cell);
      for_each_action(cell, [&due, &result](const Action& action) {
        if (!completes_gradient(action.kind) || --due[action.stage] > 0) return;
        result.push_back(communication_cell(CellKind::kReduceGradient, action.stage));
      });
    }
    cells = std::move(result);
  }
}

}  // namespace flopcast
