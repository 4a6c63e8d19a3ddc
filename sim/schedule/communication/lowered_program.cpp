#include "sim/schedule/communication/lowered_program.hpp"

#include <algorithm>

namespace flopcast {

namespace {

std::vector<Cell> cells_of(const std::vector<Action>& actions) {
  std::vector<Cell> cells;
  cells.reserve(actions.size());
  for (std::size_t index = 0; index < actions.size(); ++index) {
    const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
    cells.push_back(pair ? pair_cell(actions[index], actions[index + 1]) : compute_cell(actions[index]));
    if (pair) ++index;
  }
  return cells;
}

std::vector<Action> actions_of(const std::vector<Cell>& cells) {
  std::vector<Action> actions;
  for (const Cell& cell : cells) {
    if (!is_compute(cell.kind)) continue;
    actions.push_back(cell.action);
    if (cell.kind != CellKind::kPair) continue;
    actions.back().overlaps_next = true;
    actions.push_back(cell.second);
  }
  return actions;
}

}  // namespace

std::size_t LoweredProgram::communication_count() const {
  std::ptrdiff_t count = 0;
  for (const std::vector<Cell>& cells : ranks) {
    count += std::count_if(cells.begin(), cells.end(), [](const Cell& cell) { return is_communication(cell.kind); });
  }
  return static_cast<std::size_t>(count);
}

std::vector<std::size_t> LoweredProgram::microbatches_by_stage() const {
  std::vector<std::size_t> counts(rank_of_stage.size(), 0);
  for (const std::vector<Cell>& cells : ranks) {
    for (const Cell& cell : cells) {
      for_each_action(cell, [&counts](const Action& action) {
        counts[action.stage] = std::max(counts[action.stage], std::size_t{action.microbatch} + 1);
      });
    }
  }
  return counts;
}

LoweredProgram as_cells(const Program& program) {
  LoweredProgram lowered;
  lowered.schedule = program.schedule;
  lowered.rank_of_stage = program.rank_of_stage;
  lowered.chains = program.chains;
  for (const std::vector<Action>& actions : program.ranks) lowered.ranks.push_back(cells_of(actions));
  return lowered;
}

Program compute_of(const LoweredProgram& lowered) {
  Program program;
  program.schedule = lowered.schedule;
  program.rank_of_stage = lowered.rank_of_stage;
  program.chains = lowered.chains;
  for (const std::vector<Cell>& cells : lowered.ranks) program.ranks.push_back(actions_of(cells));
  return program;
}

}  // namespace flopcast
