#include "sim/cells/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/error/error.hpp"
#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"

namespace flopcast {

namespace {

ScheduleFault fault_at_cell(const CellProgram& program, int rank, std::size_t step, std::string reason) {
  ScheduleFault fault;
  fault.rank = rank;
  fault.step = static_cast<int>(step);
  fault.cell = to_string(program.ranks[static_cast<std::size_t>(rank)][step]);
  fault.reason = std::move(reason);
  return fault;
}

// Whether the program lists sends or receives at all.
bool lists_transfers(const CellProgram& program) {
  return std::any_of(program.ranks.begin(), program.ranks.end(), [](const std::vector<Cell>& cells) {
    return std::any_of(cells.begin(), cells.end(),
                       [](const Cell& cell) { return is_send(cell.kind) || is_receive(cell.kind); });
  });
}

class TransferCheck {
 public:
  explicit TransferCheck(const CellProgram& program)
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

  const CellProgram& program_;
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

std::optional<ScheduleFault> find_transfer_fault(const CellProgram& program) {
  if (!lists_transfers(program)) return std::nullopt;
  return TransferCheck(program).run();
}

bool has(const CellProgram& program, CellKind a, CellKind b) {
  return std::any_of(program.ranks.begin(), program.ranks.end(), [a, b](const std::vector<Cell>& cells) {
    return std::any_of(cells.begin(), cells.end(),
                       [a, b](const Cell& cell) { return cell.kind == a || cell.kind == b; });
  });
}

bool adds_to_gradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

class StageCheck {
 public:
  explicit StageCheck(const CellProgram& program)
      : program_(program),
        shards_(has(program, CellKind::kUnshard, CellKind::kReshard)),
        reduces_(has(program, CellKind::kReduceGradient, CellKind::kReduceGradient)),
        unsharded_(program.rank_of_stage.size(), false),
        reduced_(program.rank_of_stage.size(), false),
        due_(program.rank_of_stage.size(), 0) {
    for (const std::vector<Cell>& cells : program.ranks) {
      for (const Cell& cell : cells) {
        for_each_action(cell, [this](const Action& action) {
          if (adds_to_gradient(action.kind)) ++due_[action.stage];
        });
      }
    }
  }

  std::optional<ScheduleFault> run() {
    for (int rank = 0; rank < program_.rank_count(); ++rank) {
      const std::vector<Cell>& cells = program_.ranks[static_cast<std::size_t>(rank)];
      for (std::size_t step = 0; step < cells.size(); ++step) {
        std::string reason = why_wrong(cells[step], rank);
        if (!reason.empty()) return fault_at_cell(program_, rank, step, std::move(reason));
      }
    }
    return find_missing_reduction();
  }

 private:
  std::string why_wrong(const Cell& cell, int rank) {
    if (is_compute(cell.kind)) return compute(cell);
    const bool of_stage =
        cell.kind == CellKind::kUnshard || cell.kind == CellKind::kReshard || cell.kind == CellKind::kReduceGradient;
    if (!of_stage) return {};
    const std::size_t stage = cell.action.stage;
    if (stage >= program_.rank_of_stage.size())
      return fmt::format("the program has {} stages", program_.rank_of_stage.size());
    if (program_.rank_of_stage[stage] != rank)
      return fmt::format("stage {} belongs to rank {}", stage, program_.rank_of_stage[stage]);
    return cell.kind == CellKind::kReduceGradient ? reduce(stage) : change_sharding(stage, cell.kind);
  }

  std::string compute(const Cell& cell) {
    std::string reason;
    for_each_action(cell, [this, &reason](const Action& action) {
      if (adds_to_gradient(action.kind)) --due_[action.stage];
      if (shards_ && !unsharded_[action.stage] && reason.empty())
        reason = fmt::format("{} comes while stage {} is not unsharded", to_string(action), action.stage);
    });
    return reason;
  }

  std::string change_sharding(std::size_t stage, CellKind kind) {
    const bool unshard = kind == CellKind::kUnshard;
    if (unsharded_[stage] == unshard)
      return fmt::format("stage {} is {} already", stage, unshard ? "unsharded" : "sharded");
    unsharded_[stage] = unshard;
    return {};
  }

  std::string reduce(std::size_t stage) {
    if (reduced_[stage]) return fmt::format("the gradients of stage {} are reduced a second time", stage);
    reduced_[stage] = true;
    if (due_[stage] == 0) return {};
    return fmt::format("{} microbatch{} yet to add to the gradients of stage {}", due_[stage],
                       due_[stage] == 1 ? " has" : "es have", stage);
  }

  std::optional<ScheduleFault> find_missing_reduction() const {
    if (!reduces_) return std::nullopt;
    for (std::size_t stage = 0; stage < reduced_.size(); ++stage) {
      if (reduced_[stage]) continue;
      ScheduleFault fault;
      fault.rank = program_.rank_of_stage[stage];
      fault.reason = fmt::format("{}REDUCE_GRAD is missing", stage);
      return fault;
    }
    return std::nullopt;
  }

  const CellProgram& program_;
  bool shards_;
  bool reduces_;
  std::vector<bool> unsharded_;   // by stage
  std::vector<bool> reduced_;     // by stage
  std::vector<std::size_t> due_;  // by stage: microbatches that have yet to add to its gradients
};

std::optional<ScheduleFault> find_stage_fault(const CellProgram& program) {
  return StageCheck(program).run();
}

// Executes the ranks in any order that the transfers allow: which one does not matter, because a cell that can run
// stays able to run.
class CellExecution {
 public:
  explicit CellExecution(const CellProgram& program)
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

  const CellProgram& program_;
  TransferMap transfers_;
  bool lists_transfers_;
  TransferFlags available_;
  std::vector<std::size_t> next_;  // by rank: the step it executes next
  std::vector<bool> is_runnable_;  // by rank
};

// The cell that would make the transfer available, as its rank writes it.
std::string CellExecution::provider_of(const StageTransfer& transfer) const {
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

ScheduleFault CellExecution::describe(int rank) {
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

std::optional<ScheduleFault> find_communication_deadlock(const CellProgram& program) {
  return CellExecution(program).run();
}

// The step among all cells of what is step `step` among the compute cells.
int step_among_all(const std::vector<Cell>& cells, int step) {
  for (std::size_t index = 0; index < cells.size(); ++index) {
    if (!is_compute(cells[index].kind)) continue;
    if (step-- == 0) return static_cast<int>(index);
  }
  return static_cast<int>(cells.size());
}

std::optional<ScheduleFault> find_compute_fault(const CellProgram& program) {
  std::optional<ScheduleFault> fault = find_fault(compute_of(program));
  // A deadlock is found again among all cells, with their steps.
  if (!fault || !fault->cycle.empty()) return std::nullopt;
  if (fault->rank && fault->step) {
    fault->step = step_among_all(program.ranks[static_cast<std::size_t>(*fault->rank)], *fault->step);
  }
  return fault;
}

struct ListedTransfer {
  StageTransfer transfer;
  std::size_t step = 0;
};

// By (rank, peer): the transfers between the two in the order in which the rank lists them.
using TransferLists = std::map<std::pair<int, int>, std::vector<ListedTransfer>>;

TransferLists list_transfers(const CellProgram& program, const TransferMap& transfers) {
  TransferLists lists;
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    const std::vector<Cell>& cells = program.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t step = 0; step < cells.size(); ++step) {
      const auto transfer = transfers.of(cells[step]);
      if (!transfer) continue;
      const int peer = is_send(cells[step].kind) ? transfers.receiver(*transfer) : transfers.sender(*transfer);
      lists[{rank, peer}].push_back({*transfer, step});
    }
  }
  return lists;
}

}  // namespace

std::optional<ScheduleFault> find_fault(const CellProgram& program) {
  // Without communications, all there is to find.
  if (!program.replicas_of_stage.empty()) return find_fault(compute_of(program));
  for (const auto check : {find_compute_fault, find_transfer_fault, find_stage_fault, find_communication_deadlock}) {
    if (std::optional<ScheduleFault> fault = check(program)) return fault;
  }
  return std::nullopt;
}

std::optional<ScheduleFault> find_transfer_mismatch(const CellProgram& program) {
  const TransferMap transfers(program.chains, program.rank_of_stage);
  const TransferLists lists = list_transfers(program, transfers);
  for (const auto& [ranks, mine] : lists) {
    const auto [rank, peer] = ranks;
    if (rank > peer) continue;
    const std::vector<ListedTransfer>& theirs = lists.at({peer, rank});
    const auto [here, there] =
        std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                      [](const ListedTransfer& a, const ListedTransfer& b) { return a.transfer == b.transfer; });
    if (here == mine.end() || there == theirs.end()) continue;
    const auto peer_step = static_cast<int>(there->step);
    ScheduleFault fault = fault_at_cell(program, rank, here->step, "");
    fault.reason = fmt::format(
        "ranks {} and {} list their transfers in different orders: next is {} here, {} on rank {} at step {}", rank,
        peer, fault.cell, to_string(program.ranks[static_cast<std::size_t>(peer)][there->step]), peer, peer_step);
    fault.cycle = {{.rank = rank, .step = *fault.step}, {.rank = peer, .step = peer_step}};
    return fault;
  }
  return std::nullopt;
}

}  // namespace flopcast
