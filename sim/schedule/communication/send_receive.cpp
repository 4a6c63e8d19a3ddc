#include <cstddef>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "model/error/error.hpp"
#include "sim/schedule/communication/passes.hpp"
#include "sim/schedule/communication/transfer.hpp"

namespace flopcast {

namespace {

// Which rank takes a cell in which round.
struct Turn {
  std::size_t round = 0;
  std::size_t rank = 0;

  friend bool operator>(const Turn& a, const Turn& b) {
    return a.round != b.round ? a.round > b.round : a.rank > b.rank;
  }
};

// In every round each rank takes one cell, the lowest rank first. A rank that lacks something is woken when it arrives:
// in the same round by a lower rank, in the next by a higher one.
class SendReceivePass {
 public:
  explicit SendReceivePass(const LoweredProgram& program)
      : program_(program),
        transfers_(program.chains, program.rank_of_stage),
        arrived_(program.microbatches_by_stage()),
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
      const auto needed = transfers_.needed_by(action);
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
      if (const auto produced = transfers_.produced_by(action)) pass_on(*produced, turn);
    });
  }

  void pass_on(const StageTransfer& transfer, const Turn& turn) {
    arrived_[transfer] = true;
    if (!transfers_.crosses_ranks(transfer)) return;
    const auto receiver = static_cast<std::size_t>(transfers_.receiver(transfer));
    result_[turn.rank].push_back(transfer.send());
    result_[receiver].push_back(transfer.receive());
    if (!waits_[receiver]) return;
    waits_[receiver] = false;
    turns_.push({turn.round + (turn.rank < receiver ? 0 : 1), receiver});
  }

  const LoweredProgram& program_;
  TransferMap transfers_;
  TransferFlags arrived_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::vector<std::size_t> next_;  // by rank: the cell it takes next
  std::vector<bool> waits_;        // by rank
  std::vector<std::vector<Cell>> result_;
};

}  // namespace

void add_send_receive(LoweredProgram& program) {
  program.ranks = SendReceivePass(program).run();
}

}  // namespace flopcast
