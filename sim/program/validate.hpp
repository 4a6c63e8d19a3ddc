#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "sim/program/needs.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// A cell of a schedule. Steps count the cells of a rank from 0; an overlapped pair is one cell.
struct SchedulePlace {
  int rank = 0;
  int step = 0;
};

/// Why a program cannot be executed.
struct ScheduleFault {
  std::optional<int> rank;  ///< absent if the fault does not concern one rank in particular
  std::optional<int> step;  ///< absent if something is missing rather than wrong
  std::string cell;         ///< text of the cell at that step
  std::string reason;
  std::vector<SchedulePlace> cycle;  ///< deadlock: the cells that wait for each other in a cycle
};

/// Returns the first fault of a program, or nullopt if it can be executed. Checks, in this order: the chains cover the
/// stages; every rank has work, and every stage belongs to one rank, or to replicas that take its microbatches in turn
/// and do nothing else; every overlapped pair is a forward and a B or I; all stages of a chain have the same
/// microbatches 0 .. m-1; each stage runs F once, then either B once or I and W once in this order; no rank waits
/// forever, given that F(s) needs F(s-1), B and I of s need F(s) and the B or I of s+1, and W(s) needs I(s). Time and
/// memory are linear in the number of actions.
std::optional<ScheduleFault> find_fault(const Program& program);

/// "rank 1, step 3 (1B0): …"
std::string render_fault(const ScheduleFault& fault);

/// Returns "0-3,4-7" if a faulty program of one chain is valid as two chains of half the stages each, the second of
/// which runs through the ranks in the opposite direction; nullopt otherwise. The text of a program does not say which
/// of the two was meant, so this is only a hint.
std::optional<std::string> hint_two_chains(const Program& program);

/// A rank that can never execute its next cell, and the cell of another rank that it waits for.
struct BlockedCell {
  SchedulePlace place;
  std::string cell;
  std::string awaited;
  int awaited_rank = 0;
};

/// Describes the cycle at the end of `waits`: each entry waits for the next, and the last one for the entry at `begin`.
ScheduleFault describe_cycle(const std::vector<BlockedCell>& waits, std::size_t begin);

/// Finds ranks that wait for each other in a cycle. `Steps` describes what the ranks execute, each in its own order:
///
///   size(rank)                          number of its entries
///   width(rank, next)                   entries in the step that begins at `next`
///   for_each_action(rank, next, visit)  the compute actions of that step
///   for_each_made(rank, next, visit)    the transfers that this step makes available
///   place(rank, next), text(rank, next) the step's number and text, for the fault
///   provider(transfer)                  text of the action that makes the transfer available
///
/// A step waits for the transfers that its actions need. The steps must have no other fault. Linear in their number.
template <class Steps>
class DeadlockSearch {
 public:
  /// `microbatches` is indexed by stage.
  DeadlockSearch(const Steps& steps, const Needs& needs, std::size_t ranks, const ByStage<std::size_t>& microbatches)
      : steps_(steps), needs_(needs), arrived_(microbatches, false), next_(ranks, 0) {}

  std::optional<ScheduleFault> run() {
    replay(next_.size(), [this](std::size_t rank, const auto& wake) { this->advance(rank, wake); });
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < steps_.size(rank)) return describe(rank);
    }
    return std::nullopt;
  }

 private:
  template <class Wake>
  void advance(std::size_t rank, const Wake& wake) {
    std::size_t& next = next_[rank];
    for (; next < steps_.size(rank) && !awaited_at(rank); next += steps_.width(rank, next)) {
      steps_.for_each_made(rank, next, [&](const StageTransfer& made) {
        arrived_[made] = true;
        wake(static_cast<std::size_t>(needs_.receiver(made)));
      });
    }
  }

  // The first transfer that the rank's next step is still waiting for.
  std::optional<StageTransfer> awaited_at(std::size_t rank) const {
    std::optional<StageTransfer> awaited;
    steps_.for_each_action(rank, next_[rank], [&](const Action& action) {
      if (awaited || !needs_.input_of(action) || arrived_[action]) return;
      awaited = needs_.needed_by(action);
    });
    return awaited;
  }

  // Follows the waits from rank to rank until one repeats. This ends in a cycle because the steps have no other fault.
  ScheduleFault describe(std::size_t rank) const {
    std::vector<BlockedCell> waits;
    std::vector<std::size_t> place(next_.size(), next_.size());
    while (place[rank] == next_.size()) {
      place[rank] = waits.size();
      const std::optional<StageTransfer> awaited = awaited_at(rank);
      FLOPCAST_CHECK(awaited.has_value());
      waits.push_back({.place = {.rank = static_cast<int>(rank), .step = steps_.place(rank, next_[rank])},
                       .cell = steps_.text(rank, next_[rank]),
                       .awaited = steps_.provider(*awaited),
                       .awaited_rank = needs_.sender(*awaited)});
      rank = static_cast<std::size_t>(waits.back().awaited_rank);
    }
    return describe_cycle(waits, place[rank]);
  }

  const Steps& steps_;
  const Needs& needs_;
  Inputs<bool> arrived_;
  std::vector<std::size_t> next_;  // indexed by rank
};

}  // namespace flopcast
