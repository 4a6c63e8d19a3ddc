#include "sim/cells/cell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/validate.hpp"

namespace flopcast {

namespace {

ScheduleFault fault_at_cell(const CellProgram& program, int rank, std::size_t step, std::string reason) {
  ScheduleFault fault;
  fault.rank = rank;
  fault.step = static_cast<int>(step);
  fault.cell = to_string(program.ranks[rank][step]);
  fault.reason = std::move(reason);
  return fault;
}

// True if the program lists any send or receive.
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
        needs_(needs_of(program)),
        microbatches_(program.microbatches_by_stage()),
        sent_(microbatches_, false),
        received_(microbatches_, false),
        made_(microbatches_, false),
        arrived_(microbatches_, false) {}

  std::optional<ScheduleFault> run() {
    for (const auto check :
         {&TransferCheck::check_place, &TransferCheck::check_other_half, &TransferCheck::check_order}) {
      for (int rank = 0; rank < program_.rank_count(); ++rank) {
        const std::vector<Cell>& cells = program_.ranks[rank];
        for (std::size_t step = 0; step < cells.size(); ++step) {
          std::string reason = (this->*check)(cells[step], rank);
          if (!reason.empty()) return fault_at_cell(program_, rank, step, std::move(reason));
        }
      }
    }
    return std::nullopt;
  }

 private:
  // Each check is called for all cells in turn and returns why the cell is wrong; empty if it is not.
  std::string check_place(const Cell& cell, int rank);
  std::string check_other_half(const Cell& cell, int rank);
  std::string check_order(const Cell& cell, int rank);

  const CellProgram& program_;
  Needs needs_;
  ByStage<std::size_t> microbatches_;
  Inputs<bool> sent_;  // sent by any rank at any step
  Inputs<bool> received_;
  Inputs<bool> made_;  // before the current cell
  Inputs<bool> arrived_;
};

std::string TransferCheck::check_place(const Cell& cell, int rank) {
  if (!is_send(cell.kind) && !is_receive(cell.kind)) return {};
  const int stage = cell.action.stage;
  if (stage >= program_.stage_count()) return fmt::format("the program has {} stages", program_.stage_count());
  if (program_.rank_of_stage[stage] != rank)
    return fmt::format("stage {} belongs to rank {}", stage, program_.rank_of_stage[stage]);
  const auto transfer = transfer_of(needs_, cell);
  const bool to_next = cell.kind == CellKind::kSendForward || cell.kind == CellKind::kReceiveBackward;
  if (!transfer) {
    return fmt::format("stage {} is the {} of its chain: there is no stage to {}", stage, to_next ? "last" : "first",
                       is_send(cell.kind) ? "send to" : "receive from");
  }
  const std::size_t count = microbatches_[stage];
  if (cell.action.microbatch >= count) return fmt::format("stage {} has microbatches 0 to {}", stage, count - 1);
  if (!needs_.crosses_ranks(*transfer)) {
    return fmt::format("stages {} and {} are both on rank {}, so no transfer is needed between them",
                       transfer->from_stage, transfer->to_stage, rank);
  }
  auto seen = is_send(cell.kind) ? sent_[*transfer] : received_[*transfer];
  if (seen) return to_string(cell) + " is listed twice";
  seen = true;
  return {};
}

std::string TransferCheck::check_other_half(const Cell& cell, int /*rank*/) {
  const auto missing = [this](const StageTransfer& transfer, bool send) {
    return send ? fmt::format("{} of rank {} is missing", to_string(send_cell(transfer)), needs_.sender(transfer))
                : fmt::format("{} of rank {} is missing", to_string(receive_cell(transfer)), needs_.receiver(transfer));
  };
  if (const auto transfer = transfer_of(needs_, cell)) {
    if (is_send(cell.kind) && !received_[*transfer]) return missing(*transfer, false);
    if (is_receive(cell.kind) && !sent_[*transfer]) return missing(*transfer, true);
  }
  std::string reason;
  for_each_action(cell, [&](const Action& action) {
    const auto needed = needs_.needed_by(action);
    if (!needed || !needs_.crosses_ranks(*needed) || received_[*needed] || !reason.empty()) return;
    reason = missing(*needed, false);
    if (!sent_[*needed])
      reason +=
          ", and so is " + to_string(send_cell(*needed)) + " of rank " + fmt::format("{}", needs_.sender(*needed));
  });
  return reason;
}

std::string TransferCheck::check_order(const Cell& cell, int /*rank*/) {
  std::string reason;
  if (const auto transfer = transfer_of(needs_, cell)) {
    if (is_receive(cell.kind)) arrived_[*transfer] = true;
    if (is_send(cell.kind) && !made_[*transfer]) {
      reason = fmt::format("{} comes before the {} that produces its data", to_string(cell),
                           transfer->is_forward() ? "forward" : "backward");
    }
  }
  for_each_action(cell, [&](const Action& action) {
    const auto needed = needs_.needed_by(action);
    if (!needed || !needs_.crosses_ranks(*needed) || arrived_[*needed] || !reason.empty()) return;
    reason = fmt::format("{} comes before {}", to_string(action), to_string(receive_cell(*needed)));
  });
  for_each_action(cell, [&](const Action& action) {
    if (const auto made = needs_.produced_by(action)) made_[*made] = true;
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
      const std::vector<Cell>& cells = program_.ranks[rank];
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
        reason = fmt::format("{} runs while stage {} is not unsharded", to_string(action), action.stage);
    });
    return reason;
  }

  std::string change_sharding(std::size_t stage, CellKind kind) {
    const bool unshard = kind == CellKind::kUnshard;
    if (unsharded_[stage] == unshard)
      return fmt::format("stage {} is already {}", stage, unshard ? "unsharded" : "sharded");
    unsharded_[stage] = unshard;
    return {};
  }

  std::string reduce(std::size_t stage) {
    if (reduced_[stage]) return fmt::format("the gradients of stage {} are reduced twice", stage);
    reduced_[stage] = true;
    if (due_[stage] == 0) return {};
    return fmt::format("{} microbatch{} yet to contribute to the gradients of stage {}", due_[stage],
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
  std::vector<bool> unsharded_;   // indexed by stage
  std::vector<bool> reduced_;     // indexed by stage
  std::vector<std::size_t> due_;  // indexed by stage: microbatches that have yet to contribute to its gradients
};

std::optional<ScheduleFault> find_stage_fault(const CellProgram& program) {
  return StageCheck(program).run();
}

// Cells in the form that DeadlockSearch expects. Sends and receives return at once; an action waits until its input has
// been sent.
class CellSteps {
 public:
  CellSteps(const CellProgram& program, const Needs& needs)
      : program_(program), needs_(needs), lists_transfers_(lists_transfers(program)) {}

  std::size_t size(std::size_t rank) const { return program_.ranks[rank].size(); }
  static std::size_t width(std::size_t /*rank*/, std::size_t /*next*/) { return 1; }
  template <class Visit>
  void for_each_action(std::size_t rank, std::size_t next, const Visit& visit) const {
    flopcast::for_each_action(program_.ranks[rank][next], visit);
  }
  template <class Visit>
  void for_each_made(std::size_t rank, std::size_t next, const Visit& visit) const {
    const Cell& cell = program_.ranks[rank][next];
    if (is_send(cell.kind)) visit(*transfer_of(needs_, cell));
    flopcast::for_each_action(cell, [&](const Action& action) {
      const auto made = needs_.produced_by(action);
      if (made && !is_sent(*made)) visit(*made);
    });
  }
  static int place(std::size_t /*rank*/, std::size_t next) { return static_cast<int>(next); }
  std::string text(std::size_t rank, std::size_t next) const { return to_string(program_.ranks[rank][next]); }
  std::string provider(const StageTransfer& transfer) const {
    if (is_sent(transfer)) return to_string(send_cell(transfer));
    std::string text;
    for (const Cell& cell : program_.ranks[needs_.sender(transfer)]) {
      flopcast::for_each_action(cell, [&](const Action& action) {
        if (needs_.produced_by(action) == transfer) text = to_string(action);
      });
    }
    return text;
  }

 private:
  bool is_sent(const StageTransfer& transfer) const { return lists_transfers_ && needs_.crosses_ranks(transfer); }

  const CellProgram& program_;
  const Needs& needs_;
  bool lists_transfers_;
};

std::optional<ScheduleFault> find_cell_deadlock(const CellProgram& program) {
  const Needs needs = needs_of(program);
  const CellSteps steps(program, needs);
  return DeadlockSearch(steps, needs, program.ranks.size(), program.microbatches_by_stage()).run();
}

// Converts a step among the compute cells to the step among all cells.
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
    fault->step = step_among_all(program.ranks[*fault->rank], *fault->step);
  }
  return fault;
}

struct ListedTransfer {
  StageTransfer transfer;
  std::size_t step = 0;
};

// Transfers between two ranks in the order in which the first lists them, keyed by (rank, peer).
using TransferLists = std::map<std::pair<int, int>, std::vector<ListedTransfer>>;

TransferLists list_transfers(const CellProgram& program, const Needs& needs) {
  TransferLists lists;
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    const std::vector<Cell>& cells = program.ranks[rank];
    for (std::size_t step = 0; step < cells.size(); ++step) {
      const auto transfer = transfer_of(needs, cells[step]);
      if (!transfer) continue;
      const int peer = is_send(cells[step].kind) ? needs.receiver(*transfer) : needs.sender(*transfer);
      lists[{rank, peer}].push_back({*transfer, step});
    }
  }
  return lists;
}

}  // namespace

std::optional<ScheduleFault> find_fault(const CellProgram& program) {
  // Replicated stages list no communications, so there is nothing else to check.
  if (!program.replicas_of_stage.empty()) return find_fault(compute_of(program));
  for (const auto check : {find_compute_fault, find_transfer_fault, find_stage_fault, find_cell_deadlock}) {
    if (std::optional<ScheduleFault> fault = check(program)) return fault;
  }
  return std::nullopt;
}

std::optional<ScheduleFault> find_transfer_mismatch(const CellProgram& program) {
  const Needs needs = needs_of(program);
  const TransferLists lists = list_transfers(program, needs);
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
        "ranks {} and {} list their transfers in different orders: next is {} here but {} on rank {} at step {}", rank,
        peer, fault.cell, to_string(program.ranks[peer][there->step]), peer, peer_step);
    fault.cycle = {{.rank = rank, .step = *fault.step}, {.rank = peer, .step = peer_step}};
    return fault;
  }
  return std::nullopt;
}

namespace {

constexpr int kMostShownSteps = 40;
constexpr int kMostShownRanks = 16;
constexpr int kContext = 6;  // steps shown before and after the fault

struct Window {
  int begin = 0;
  int end = 0;
};

// At most `most` of 0 .. count - 1, centred on `centre` where possible.
Window window_around(int centre, int most, int count) {
  const int begin = std::max(0, std::min(centre - most / 2, count - most));
  return {begin, std::min(count, begin + most)};
}

std::vector<std::string> texts_of(const std::vector<Cell>& cells, const Window& window) {
  std::vector<std::string> texts;
  const int end = std::min(window.end, static_cast<int>(cells.size()));
  for (int step = window.begin; step < end; ++step) {
    const Cell& cell = cells[static_cast<std::size_t>(step)];
    texts.push_back(cell.kind == CellKind::kPair
                        ? fmt::format("({};{})", to_string(cell.action), to_string(cell.second))
                        : to_string(cell));
  }
  return texts;
}

bool at_fault(const ScheduleFault& fault, int rank, int step) {
  if (fault.rank == rank && fault.step == step) return true;
  return std::any_of(fault.cycle.begin(), fault.cycle.end(),
                     [&](const SchedulePlace& blocked) { return blocked.rank == rank && blocked.step == step; });
}

Window steps_to_show(const CellProgram& program, const ScheduleFault& fault) {
  int steps = 0;
  for (const std::vector<Cell>& cells : program.ranks) steps = std::max(steps, static_cast<int>(cells.size()));
  if (!fault.step) return window_around(0, kMostShownSteps, steps);
  int earliest = *fault.step;
  int latest = *fault.step;
  for (const SchedulePlace& blocked : fault.cycle) {
    earliest = std::min(earliest, blocked.step);
    latest = std::max(latest, blocked.step);
  }
  if (latest - earliest + 1 > kMostShownSteps) return window_around(*fault.step, kMostShownSteps, steps);
  return {std::max(0, earliest - kContext),
          std::min({steps, latest + kContext + 1, earliest - kContext + kMostShownSteps})};
}

std::string outside(const char* words, int count, int shown) {
  return shown == count ? std::string() : fmt::format(" ({} of {} {})", shown, count, words);
}

}  // namespace

std::string render_fault_grid(const CellProgram& program, const ScheduleFault& fault) {
  const Window steps = steps_to_show(program, fault);
  const Window ranks = window_around(fault.rank.value_or(0), kMostShownRanks, program.rank_count());
  std::vector<std::vector<std::string>> columns;
  std::size_t width = fmt::format("rank {}", ranks.end).size();
  for (int rank = ranks.begin; rank < ranks.end; ++rank) {
    columns.push_back(texts_of(program.ranks[rank], steps));
    for (const std::string& cell : columns.back()) width = std::max(width, cell.size() + 2);
  }
  const std::size_t head = fmt::format("step {}", steps.end).size();
  std::string text = fmt::format("{:{}}", "", head);
  for (int rank = ranks.begin; rank < ranks.end; ++rank)
    text += fmt::format(" {:^{}}", fmt::format("rank {}", rank), width);
  text.erase(text.find_last_not_of(' ') + 1);
  text += outside("ranks", program.rank_count(), ranks.end - ranks.begin) + "\n";
  for (int step = steps.begin; step < steps.end; ++step) {
    std::string row = fmt::format("{:{}}", fmt::format("step {}", step), head);
    bool marked = false;
    for (int rank = ranks.begin; rank < ranks.end; ++rank) {
      const std::vector<std::string>& cells = columns[static_cast<std::size_t>(rank - ranks.begin)];
      const auto line = static_cast<std::size_t>(step - steps.begin);
      const bool faulty = at_fault(fault, rank, step);
      marked = marked || faulty;
      const std::string cell = line < cells.size() ? cells[line] : "";
      row += fmt::format(" {:^{}}", faulty ? "[" + cell + "]" : cell, width);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + (marked ? "  <-- here\n" : "\n");
  }
  return text;
}

std::string render_fault_grid(const Program& program, const ScheduleFault& fault) {
  return render_fault_grid(as_cells(program), fault);
}

}  // namespace flopcast
