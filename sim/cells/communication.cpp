#include "sim/cells/cell.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "base/text/error.hpp"

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

// The first `count` stages in the order of their next use; one more if a pair uses two at once.
std::vector<int> first_of(const std::vector<NextUse>& uses, std::size_t count) {
  std::vector<int> stages;
  for (std::size_t place = 0; place < uses.size(); ++place) {
    if (place >= count && (place == 0 || uses[place].cell != uses[place - 1].cell)) break;
    stages.push_back(uses[place].stage);
  }
  return stages;
}

// Stages to hold unsharded while each cell runs, indexed by cell. Works from the end and moves each used stage to the
// front of the list, so that time is linear in the cells.
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

void add_unshard_reshard(CellProgram& program, int active_stages) {
  for (std::vector<Cell>& cells : program.ranks) cells = with_sharding(cells, active_stages);
}

namespace {

constexpr bool completes_gradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

}  // namespace

void add_gradient_reductions(CellProgram& program) {
  // Indexed by stage: microbatches that have yet to contribute to its gradients.
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

namespace {

// The round in which a rank takes a cell.
struct Turn {
  std::size_t round = 0;
  std::size_t rank = 0;

  friend bool operator>(const Turn& a, const Turn& b) {
    return a.round != b.round ? a.round > b.round : a.rank > b.rank;
  }
};

// In every round each rank takes one cell, the lowest rank first. A rank that lacks an input is woken when it arrives:
// in the same round by a lower rank, in the next by a higher one.
class SendReceivePass {
 public:
  explicit SendReceivePass(const CellProgram& program)
      : program_(program),
        needs_(needs_of(program)),
        arrived_(program.microbatches_by_stage(), false),
        next_(program.ranks.size(), 0),
        waits_(program.ranks.size(), false),
        result_(program.ranks.size()) {}

  std::vector<std::vector<Cell>> run() {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) turns_.push({0, rank});
    while (!turns_.empty()) {
      const Turn turn = turns_.top();
      turns_.pop();
      take(turn);
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) FLOPCAST_CHECK(next_[rank] == program_.ranks[rank].size());
    return std::move(result_);
  }

 private:
  bool is_ready(const Cell& cell) {
    bool ready = true;
    for_each_action(cell, [this, &ready](const Action& action) {
      const auto needed = needs_.needed_by(action);
      if (needed && !arrived_[*needed]) ready = false;
    });
    return ready;
  }

  void take(const Turn& turn) {
    if (next_[turn.rank] == program_.ranks[turn.rank].size()) return;
    const Cell& cell = program_.ranks[turn.rank][next_[turn.rank]];
    waits_[turn.rank] = !is_ready(cell);
    if (waits_[turn.rank]) return;
    ++next_[turn.rank];
    turns_.push({turn.round + 1, turn.rank});
    if (cell.kind == CellKind::kIdle) return;
    result_[turn.rank].push_back(cell);
    for_each_action(cell, [this, &turn](const Action& action) {
      if (const auto produced = needs_.produced_by(action)) pass_on(*produced, turn);
    });
  }

  void pass_on(const StageTransfer& transfer, const Turn& turn) {
    arrived_[transfer] = true;
    if (!needs_.crosses_ranks(transfer)) return;
    const auto receiver = static_cast<std::size_t>(needs_.receiver(transfer));
    result_[turn.rank].push_back(send_cell(transfer));
    result_[receiver].push_back(receive_cell(transfer));
    if (!waits_[receiver]) return;
    waits_[receiver] = false;
    turns_.push({turn.round + (turn.rank < receiver ? 0 : 1), receiver});
  }

  const CellProgram& program_;
  Needs needs_;
  Inputs<bool> arrived_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::vector<std::size_t> next_;  // indexed by rank: the cell it takes next
  std::vector<bool> waits_;        // indexed by rank
  std::vector<std::vector<Cell>> result_;
};

}  // namespace

void add_send_receive(CellProgram& program) {
  program.ranks = SendReceivePass(program).run();
}

namespace {

// One rank's cells, with receives taken out and put back where they are due. A consumed receive stays in its peer's
// list, where its flag identifies it.
class DeferPass {
 public:
  DeferPass(const Needs& needs, Inputs<bool>& waiting, int rank) : needs_(needs), waiting_(waiting), rank_(rank) {}

  std::vector<Cell> run(const std::vector<Cell>& cells) {
    for (const Cell& cell : cells) {
      const auto transfer = transfer_of(needs_, cell);
      if (transfer && is_receive(cell.kind)) {
        waiting_[*transfer] = true;
        from_peer_[needs_.sender(*transfer)].push_back(*transfer);
        order_.push_back(*transfer);
        continue;
      }
      if (transfer && rank_ < needs_.receiver(*transfer)) {
        std::vector<StageTransfer>& due = from_peer_[needs_.receiver(*transfer)];
        for (const StageTransfer& received : due) put_back(received);
        due.clear();
      }
      for_each_action(cell, [this](const Action& action) {
        if (const auto needed = needs_.needed_by(action)) put_back(*needed);
      });
      result_.push_back(cell);
    }
    for (const StageTransfer& transfer : order_) put_back(transfer);
    return std::move(result_);
  }

 private:
  void put_back(const StageTransfer& transfer) {
    if (!waiting_[transfer]) return;
    waiting_[transfer] = false;
    result_.push_back(receive_cell(transfer));
  }

  const Needs& needs_;
  Inputs<bool>& waiting_;
  int rank_;
  std::map<int, std::vector<StageTransfer>> from_peer_;
  std::vector<StageTransfer> order_;
  std::vector<Cell> result_;
};

}  // namespace

void defer_receives(CellProgram& program) {
  const Needs needs = needs_of(program);
  Inputs<bool> waiting(program.microbatches_by_stage(), false);
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    std::vector<Cell>& cells = program.ranks[rank];
    cells = DeferPass(needs, waiting, rank).run(cells);
  }
}

namespace {

bool is_split_backward(const Cell& first, const Cell& second) {
  return first.kind == CellKind::kCompute && second.kind == CellKind::kCompute &&
         first.action.kind == ActionKind::kInputGradient && second.action.kind == ActionKind::kWeightGradient &&
         first.action.stage == second.action.stage && first.action.microbatch == second.action.microbatch;
}

}  // namespace

void merge_backward(CellProgram& program) {
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

CellProgram add_communication(const Program& program, const CommunicationOptions& options) {
  CellProgram written = as_cells(program);
  if (options.unshard_reshard) add_unshard_reshard(written);
  add_gradient_reductions(written);
  add_send_receive(written);
  if (options.defer_receives) defer_receives(written);
  return written;
}

}  // namespace flopcast
