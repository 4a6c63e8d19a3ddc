#include <cstddef>
#include <vector>

#include "model/error/error.hpp"
#include "sim/schedule/communication/checks.hpp"
#include "sim/schedule/communication/transfer.hpp"
#include "sim/schedule/deadlock.hpp"

namespace flopcast {

namespace {

// Executes the ranks in any order that the transfers allow: which one does not matter, because a cell that can run
// stays able to run.
class LoweredExecution {
 public:
  explicit LoweredExecution(const LoweredProgram& program)
      : program_(program),
        transfers_(program.chains, program.rank_of_stage),
        lists_transfers_(lists_transfers(program)),
        available_(program.microbatches_by_stage()),
        next_(program.ranks.size(), 0),
        is_runnable_(program.ranks.size(), true) {}

  std::optional<ScheduleFault> run() {
    std::vector<int> runnable;
    for (int rank = program_.rank_count() - 1; rank >= 0; --rank) runnable.push_back(rank);
    while (!runnable.empty()) {
      const int rank = runnable.back();
      runnable.pop_back();
      is_runnable_[static_cast<std::size_t>(rank)] = false;
      advance(rank, runnable);
    }
    for (int rank = 0; rank < program_.rank_count(); ++rank) {
      if (next_[static_cast<std::size_t>(rank)] < cells_of(rank).size()) return describe(rank);
    }
    return std::nullopt;
  }

 private:
  const std::vector<Cell>& cells_of(int rank) const { return program_.ranks[static_cast<std::size_t>(rank)]; }
  bool is_sent(const StageTransfer& transfer) const { return lists_transfers_ && transfers_.crosses_ranks(transfer); }

  // The first transfer that the rank's next cell still lacks.
  std::optional<StageTransfer> awaited_at(int rank) {
    std::optional<StageTransfer> awaited;
    const std::size_t step = next_[static_cast<std::size_t>(rank)];
    if (step == cells_of(rank).size()) return awaited;
    for_each_action(cells_of(rank)[step], [this, &awaited](const Action& action) {
      const auto needed = transfers_.needed_by(action);
      if (needed && !awaited && !available_[*needed]) awaited = needed;
    });
    return awaited;
  }

  void provide(const StageTransfer& transfer, std::vector<int>& runnable) {
    available_[transfer] = true;
    const int receiver = transfers_.receiver(transfer);
    if (is_runnable_[static_cast<std::size_t>(receiver)]) return;
    is_runnable_[static_cast<std::size_t>(receiver)] = true;
    runnable.push_back(receiver);
  }

  void advance(int rank, std::vector<int>& runnable) {
    std::size_t& step = next_[static_cast<std::size_t>(rank)];
    for (; step < cells_of(rank).size() && !awaited_at(rank); ++step) {
      const Cell& cell = cells_of(rank)[step];
      if (is_send(cell.kind)) provide(*transfers_.of(cell), runnable);
      for_each_action(cell, [this, &runnable](const Action& action) {
        const auto made = transfers_.produced_by(action);
        if (made && !is_sent(*made)) provide(*made, runnable);
      });
    }
  }

  std::string provider_of(const StageTransfer& transfer) const;
  ScheduleFault describe(int rank);

  const LoweredProgram& program_;
  TransferMap transfers_;
  bool lists_transfers_;
  TransferFlags available_;
  std::vector<std::size_t> next_;  // by rank: the step it executes next
  std::vector<bool> is_runnable_;  // by rank
};

// The cell that would make the transfer available, as its rank writes it.
std::string LoweredExecution::provider_of(const StageTransfer& transfer) const {
  if (is_sent(transfer)) return to_string(transfer.send());
  std::string text;
  for (const Cell& cell : cells_of(transfers_.sender(transfer))) {
    for_each_action(cell, [&](const Action& action) {
      const auto made = transfers_.produced_by(action);
      if (made && *made == transfer) text = to_string(action);
    });
  }
  return text;
}

ScheduleFault LoweredExecution::describe(int rank) {
  std::vector<BlockedCell> waits;
  std::vector<std::size_t> place(program_.ranks.size(), program_.ranks.size());
  while (place[static_cast<std::size_t>(rank)] == program_.ranks.size()) {
    place[static_cast<std::size_t>(rank)] = waits.size();
    const std::size_t step = next_[static_cast<std::size_t>(rank)];
    const std::optional<StageTransfer> awaited = awaited_at(rank);
    FLOPCAST_CHECK(awaited.has_value());
    const int sender = transfers_.sender(*awaited);
    waits.push_back({.place = {.rank = rank, .step = static_cast<int>(step)},
                     .cell = to_string(cells_of(rank)[step]),
                     .awaited = provider_of(*awaited),
                     .awaited_rank = sender});
    rank = sender;
  }
  return describe_circle(waits, place[static_cast<std::size_t>(rank)]);
}

}  // namespace

std::optional<ScheduleFault> find_communication_deadlock(const LoweredProgram& program) {
  return LoweredExecution(program).run();
}

}  // namespace flopcast
