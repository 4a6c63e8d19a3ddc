#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/communication/checks.hpp"

namespace flopcast {

namespace {

bool has(const LoweredProgram& program, CellKind a, CellKind b) {
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
  explicit StageCheck(const LoweredProgram& program)
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

  const LoweredProgram& program_;
  bool shards_;
  bool reduces_;
  std::vector<bool> unsharded_;   // by stage
  std::vector<bool> reduced_;     // by stage
  std::vector<std::size_t> due_;  // by stage: microbatches that have yet to add to its gradients
};

}  // namespace

std::optional<ScheduleFault> find_stage_fault(const LoweredProgram& program) {
  return StageCheck(program).run();
}

}  // namespace flopcast
