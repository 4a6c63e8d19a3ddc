#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/communication/checks.hpp"
#include "sim/schedule/communication/transfer.hpp"

namespace flopcast {

namespace {

class TransferCheck {
 public:
  explicit TransferCheck(const LoweredProgram& program)
      : program_(program),
        transfers_(program.chains, program.rank_of_stage),
        microbatches_(program.microbatches_by_stage()),
        sent_(microbatches_),
        received_(microbatches_),
        made_(microbatches_),
        arrived_(microbatches_) {}

  std::optional<ScheduleFault> run() {
    for (const auto check :
         {&TransferCheck::check_place, &TransferCheck::check_other_half, &TransferCheck::check_order}) {
      for (int rank = 0; rank < program_.rank_count(); ++rank) {
        const std::vector<Cell>& cells = program_.ranks[static_cast<std::size_t>(rank)];
        for (std::size_t step = 0; step < cells.size(); ++step) {
          std::string reason = (this->*check)(cells[step], rank);
          if (!reason.empty()) return fault_at_cell(program_, rank, step, std::move(reason));
        }
      }
    }
    return std::nullopt;
  }

 private:
  // Each check is asked for all cells in turn and gives the reason why a cell is wrong, if it is.
  std::string check_place(const Cell& cell, int rank);
  std::string check_other_half(const Cell& cell, int rank);
  std::string check_order(const Cell& cell, int rank);

  const LoweredProgram& program_;
  TransferMap transfers_;
  std::vector<std::size_t> microbatches_;
  TransferFlags sent_;  // by any rank, at any step
  TransferFlags received_;
  TransferFlags made_;  // before the cell that is looked at
  TransferFlags arrived_;
};

std::string TransferCheck::check_place(const Cell& cell, int rank) {
  if (!is_send(cell.kind) && !is_receive(cell.kind)) return {};
  const int stage = cell.action.stage;
  if (stage >= program_.stage_count()) return fmt::format("the program has {} stages", program_.stage_count());
  if (transfers_.rank_of(stage) != rank)
    return fmt::format("stage {} belongs to rank {}", stage, transfers_.rank_of(stage));
  const auto transfer = transfers_.of(cell);
  const bool to_next = cell.kind == CellKind::kSendForward || cell.kind == CellKind::kReceiveBackward;
  if (!transfer) {
    return fmt::format("stage {} is the {} of its chain: it has no stage to {}", stage, to_next ? "last" : "first",
                       is_send(cell.kind) ? "send to" : "receive from");
  }
  const std::size_t count = microbatches_[static_cast<std::size_t>(stage)];
  if (cell.action.microbatch >= count) return fmt::format("stage {} has microbatches 0 to {}", stage, count - 1);
  if (!transfers_.crosses_ranks(*transfer)) {
    return fmt::format("stages {} and {} are both on rank {}: nothing is sent between them", transfer->from_stage,
                       transfer->to_stage, rank);
  }
  auto seen = is_send(cell.kind) ? sent_[*transfer] : received_[*transfer];
  if (seen) return to_string(cell) + " comes a second time";
  seen = true;
  return {};
}

std::string TransferCheck::check_other_half(const Cell& cell, int /*rank*/) {
  const auto missing = [this](const StageTransfer& transfer, bool send) {
    return send ? fmt::format("{} of rank {} is missing", to_string(transfer.send()), transfers_.sender(transfer))
                : fmt::format("{} of rank {} is missing", to_string(transfer.receive()), transfers_.receiver(transfer));
  };
  if (const auto transfer = transfers_.of(cell)) {
    if (is_send(cell.kind) && !received_[*transfer]) return missing(*transfer, false);
    if (is_receive(cell.kind) && !sent_[*transfer]) return missing(*transfer, true);
  }
  std::string reason;
  for_each_action(cell, [&](const Action& action) {
    const auto needed = transfers_.needed_by(action);
    if (!needed || !transfers_.crosses_ranks(*needed) || received_[*needed] || !reason.empty()) return;
    reason = missing(*needed, false);
    if (!sent_[*needed])
      reason +=
          ", and so is " + to_string(needed->send()) + " of rank " + fmt::format("{}", transfers_.sender(*needed));
  });
  return reason;
}

std::string TransferCheck::check_order(const Cell& cell, int /*rank*/) {
  std::string reason;
  if (const auto transfer = transfers_.of(cell)) {
    if (is_receive(cell.kind)) arrived_[*transfer] = true;
    if (is_send(cell.kind) && !made_[*transfer]) {
      reason = fmt::format("{} comes before the {} that makes what it sends", to_string(cell),
                           transfer->is_forward() ? "forward" : "backward");
    }
  }
  for_each_action(cell, [&](const Action& action) {
    const auto needed = transfers_.needed_by(action);
    if (!needed || !transfers_.crosses_ranks(*needed) || arrived_[*needed] || !reason.empty()) return;
    reason = fmt::format("{} comes before {}", to_string(action), to_string(needed->receive()));
  });
  for_each_action(cell, [&](const Action& action) {
    if (const auto made = transfers_.produced_by(action)) made_[*made] = true;
  });
  return reason;
}

}  // namespace

std::optional<ScheduleFault> find_transfer_fault(const LoweredProgram& program) {
  if (!lists_transfers(program)) return std::nullopt;
  return TransferCheck(program).run();
}

}  // namespace flopcast
