#include <algorithm>
#include <cstddef>
#include <utility>

#include "sim/schedule/communication/passes.hpp"

namespace flopcast {

namespace {

// A stage and the cell that uses it next.
struct NextUse {
  int stage = 0;
  std::size_t cell = 0;
};

bool contains(const std::vector<int>& stages, int stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

// The first `count` stages in the order of their next use; one more when a pair brings two at once.
std::vector<int> first_of(const std::vector<NextUse>& uses, std::size_t count) {
  std::vector<int> stages;
  for (std::size_t place = 0; place < uses.size(); ++place) {
    if (place >= count && (place == 0 || uses[place].cell != uses[place - 1].cell)) break;
    stages.push_back(uses[place].stage);
  }
  return stages;
}

// By cell: the stages to hold while it runs. Found from the end: a stage that is used moves to the front of the list,
// so that time is linear in the cells.
std::vector<std::vector<int>> windows_of(const std::vector<Cell>& cells, int active_stages) {
  std::vector<std::vector<int>> windows(cells.size());
  std::vector<NextUse> uses;
  for (std::size_t index = cells.size(); index-- > 0;) {
    const auto use = [&uses, index](int stage) {
      const auto known =
          std::find_if(uses.begin(), uses.end(), [stage](const NextUse& other) { return other.stage == stage; });
      if (known != uses.end()) uses.erase(known);
      uses.insert(uses.begin(), NextUse{stage, index});
    };
    if (!is_compute(cells[index].kind)) continue;
    if (cells[index].kind == CellKind::kPair) use(cells[index].second.stage);
    use(cells[index].action.stage);
    windows[index] = first_of(uses, static_cast<std::size_t>(active_stages));
  }
  return windows;
}

std::vector<Cell> with_sharding(const std::vector<Cell>& cells, int active_stages) {
  const std::vector<std::vector<int>> windows = windows_of(cells, active_stages);
  std::vector<int> active;  // ascending
  std::vector<Cell> result;
  for (std::size_t index = 0; index < cells.size(); ++index) {
    if (cells[index].kind == CellKind::kIdle) continue;
    std::vector<int> kept;
    for (const int stage : active) {
      if (contains(windows[index], stage)) {
        kept.push_back(stage);
      } else {
        result.push_back(communication_cell(CellKind::kReshard, stage));
      }
    }
    active = std::move(kept);
    for (const int stage : windows[index]) {
      if (contains(active, stage)) continue;
      active.insert(std::lower_bound(active.begin(), active.end(), stage), stage);
      result.push_back(communication_cell(CellKind::kUnshard, stage));
    }
    result.push_back(cells[index]);
  }
  for (const int stage : active) result.push_back(communication_cell(CellKind::kReshard, stage));
  return result;
}

}  // namespace

void add_unshard_reshard(LoweredProgram& program, int active_stages) {
  for (std::vector<Cell>& cells : program.ranks) cells = with_sharding(cells, active_stages);
}

}  // namespace flopcast
