#include "sim/schedule/communication/check.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "sim/schedule/communication/checks.hpp"

namespace flopcast {

namespace {

// The step among all cells of what is step `step` among the compute cells.
int step_among_all(const std::vector<Cell>& cells, int step) {
  for (std::size_t index = 0; index < cells.size(); ++index) {
    if (!is_compute(cells[index].kind)) continue;
    if (step-- == 0) return static_cast<int>(index);
  }
  return static_cast<int>(cells.size());
}

std::optional<ScheduleFault> find_compute_fault(const LoweredProgram& program) {
  std::optional<ScheduleFault> fault = find_fault(compute_of(program));
  // A deadlock is found again among all cells, with their steps.
  if (!fault || !fault->cycle.empty()) return std::nullopt;
  if (fault->rank && fault->step) {
    fault->step = step_among_all(program.ranks[static_cast<std::size_t>(*fault->rank)], *fault->step);
  }
  return fault;
}

}  // namespace

ScheduleFault fault_at_cell(const LoweredProgram& program, int rank, std::size_t step, std::string reason) {
  ScheduleFault fault;
  fault.rank = rank;
  fault.step = static_cast<int>(step);
  fault.cell = to_string(program.ranks[static_cast<std::size_t>(rank)][step]);
  fault.reason = std::move(reason);
  return fault;
}

bool lists_transfers(const LoweredProgram& program) {
  return std::any_of(program.ranks.begin(), program.ranks.end(), [](const std::vector<Cell>& cells) {
    return std::any_of(cells.begin(), cells.end(),
                       [](const Cell& cell) { return is_send(cell.kind) || is_receive(cell.kind); });
  });
}

std::optional<ScheduleFault> find_fault(const LoweredProgram& program) {
  for (const auto check : {find_compute_fault, find_transfer_fault, find_stage_fault, find_communication_deadlock}) {
    if (std::optional<ScheduleFault> fault = check(program)) return fault;
  }
  return std::nullopt;
}

}  // namespace flopcast
