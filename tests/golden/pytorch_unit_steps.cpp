#include "tests/golden/pytorch_unit_steps.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace flopcast {

namespace {

class UnitSteps {
 public:
  explicit UnitSteps(const CellProgram& program)
      : program_(program), next_(program.ranks.size(), 0), done_(program.ranks.size()), result_(program) {
    for (std::vector<Cell>& cells : result_.ranks) cells.clear();
  }

  CellProgram run() {
    for (bool progress = true; progress;) {
      progress = false;
      std::vector<std::size_t> idle;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        if (next_[rank] == program_.ranks[rank].size()) continue;
        result_.ranks[rank].emplace_back();
        if (take(rank)) {
          progress = true;
        } else {
          idle.push_back(rank);
        }
      }
      for (const std::size_t rank : idle) take(rank);
    }
    return result_;
  }

 private:
  bool is_done(int stage, const std::string& word, std::uint32_t microbatch) const {
    const int rank = program_.rank_of_stage[static_cast<std::size_t>(stage)];
    return done_[static_cast<std::size_t>(rank)].count(std::to_string(stage) + word + std::to_string(microbatch)) > 0;
  }

  bool is_ready(const Cell& cell) const {
    const int stage = cell.action.stage;
    const std::uint32_t microbatch = cell.action.microbatch;
    const int rank = program_.rank_of_stage[static_cast<std::size_t>(stage)];
    const auto on_this_rank = [this, rank](int other) {
      return program_.rank_of_stage[static_cast<std::size_t>(other)] == rank;
    };
    switch (cell.kind) {
      case CellKind::kSendForward:
        return is_done(stage, "F", microbatch);
      case CellKind::kSendBackward:
        return is_done(stage, "B", microbatch) || is_done(stage, "I", microbatch);
      case CellKind::kReceiveForward:
        return is_done(stage - 1, "SEND_F", microbatch);
      case CellKind::kReceiveBackward:
        return is_done(stage + 1, "SEND_B", microbatch);
      default:
        break;
    }
    if (cell.action.kind == ActionKind::kWeightGradient) return true;
    if (cell.action.kind == ActionKind::kForward) {
      return stage == 0 || is_done(stage, "RECV_F", microbatch) ||
             (on_this_rank(stage - 1) && is_done(stage - 1, "F", microbatch));
    }
    return stage + 1 == program_.stage_count() || is_done(stage, "RECV_B", microbatch) ||
           (on_this_rank(stage + 1) && (is_done(stage + 1, "B", microbatch) || is_done(stage + 1, "I", microbatch)));
  }

  bool take(std::size_t rank) {
    if (next_[rank] == program_.ranks[rank].size()) return false;
    const Cell& cell = program_.ranks[rank][next_[rank]];
    if (!is_ready(cell)) return false;
    result_.ranks[rank].back() = cell;
    done_[rank].insert(to_string(cell));
    ++next_[rank];
    return true;
  }

  const CellProgram& program_;
  std::vector<std::size_t> next_;
  std::vector<std::set<std::string>> done_;
  CellProgram result_;
};

}  // namespace

CellProgram in_unit_steps(const CellProgram& program) {
  return UnitSteps(program).run();
}

int longest_rank(const CellProgram& program) {
  std::size_t longest = 0;
  for (const std::vector<Cell>& cells : program.ranks) longest = std::max(longest, cells.size());
  return static_cast<int>(longest);
}

}  // namespace flopcast
