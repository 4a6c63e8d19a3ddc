#include <map>
#include <utility>
#include <vector>

#include "sim/schedule/communication/passes.hpp"
#include "sim/schedule/communication/transfer.hpp"

namespace flopcast {

namespace {

// One rank's cells, receives taken out and put back where they are due. A receive that was consumed stays in its peer's
// list and is recognised there by its flag.
class DeferPass {
 public:
  DeferPass(const TransferMap& transfers, TransferFlags& waiting, int rank)
      : transfers_(transfers), waiting_(waiting), rank_(rank) {}

  std::vector<Cell> run(const std::vector<Cell>& cells) {
    for (const Cell& cell : cells) {
      const auto transfer = transfers_.of(cell);
      if (transfer && is_receive(cell.kind)) {
        waiting_[*transfer] = true;
        from_peer_[transfers_.sender(*transfer)].push_back(*transfer);
        order_.push_back(*transfer);
        continue;
      }
      if (transfer && rank_ < transfers_.receiver(*transfer)) {
        std::vector<StageTransfer>& due = from_peer_[transfers_.receiver(*transfer)];
        for (const StageTransfer& received : due) put_back(received);
        due.clear();
      }
      for_each_action(cell, [this](const Action& action) {
        if (const auto needed = transfers_.needed_by(action)) put_back(*needed);
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
    result_.push_back(transfer.receive());
  }

  const TransferMap& transfers_;
  TransferFlags& waiting_;
  int rank_;
  std::map<int, std::vector<StageTransfer>> from_peer_;
  std::vector<StageTransfer> order_;
  std::vector<Cell> result_;
};

}  // namespace

void defer_receives(LoweredProgram& program) {
  const TransferMap transfers(program.chains, program.rank_of_stage);
  TransferFlags waiting(program.microbatches_by_stage());
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    std::vector<Cell>& cells = program.ranks[static_cast<std::size_t>(rank)];
    cells = DeferPass(transfers, waiting, rank).run(cells);
  }
}

}  // namespace flopcast
