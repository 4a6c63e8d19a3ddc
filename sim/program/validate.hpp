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
  std::optional<int> rank;  ///< absent when no rank in particular is at fault
  std::optional<int> step;  ///< absent when something is missing rather than wrong
  std::string cell;         ///< what stands at that step
  std::string reason;
  std::vector<SchedulePlace> cycle;  ///< deadlock: the cells that wait for each other in a circle
};

/// The first fault of a program, nothing when it can be executed. In this order: chains cover the stages; every rank
/// has work, every stage belongs to one rank, or to replicas that take its microbatches in turn and do nothing else;
/// overlapped pairs are a forward and a B or I; all stages of a chain have the same microbatches 0 .. m-1; on each
/// stage F comes once, then B once or I and W once in this order; no rank waits forever, given that F(s) needs F(s-1),
/// B and I of s need F(s) and the B or I of s+1, W(s) needs I(s). Time and memory are linear in the number of actions.
std::optional<ScheduleFault> find_fault(const Program& program);

/// "rank 1, step 3 (1B0): …"
std::string render_fault(const ScheduleFault& fault);

/// "0-3,4-7" where a faulty program of one chain has no fault as two chains of half the stages each, the second one
/// running through the ranks in the opposite direction; nothing otherwise. A text cannot say which of the two was
/// meant, so this is a hint and not a reading.
std::optional<std::string> hint_two_chains(const Program& program);

/// A rank that can never execute its next cell, and whose cell it waits for.
struct BlockedCell {
  SchedulePlace place;
  std::string cell;
  std::string awaited;
  int awaited_rank = 0;
};

/// The circle at the end of `waits`, each of which waits for the next and the last for the one at `begin`.
ScheduleFault describe_circle(const std::vector<BlockedCell>& waits, std::size_t begin);

/// Looks for ranks that wait for each other in a circle. `Steps` says what the ranks execute, each in its own order:
///
///   size(rank)                          how much of it there is
///   width(rank, next)                   of this the step that begins at `next`
///   for_each_action(rank, next, visit)  the compute actions of that step
///   for_each_made(rank, next, visit)    the transfers that are there once it ran
///   place(rank, next), text(rank, next) as a fault names it
///   provider(transfer)                  the text of what makes the transfer available
///
/// A step waits for the transfers that its actions need. Expects steps without any other fault. Linear in the steps.
template <class Steps>
class DeadlockSearch {
 public:
  /// `microbatches` by stage.
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

  // The first transfer that the rank's next step still lacks.
  std::optional<StageTransfer> awaited_at(std::size_t rank) const {
    std::optional<StageTransfer> awaited;
    steps_.for_each_action(rank, next_[rank], [&](const Action& action) {
      if (awaited || !needs_.input_of(action) || arrived_[action]) return;
      awaited = needs_.needed_by(action);
    });
    return awaited;
  }

  // Follows who waits for whom until a rank comes up again: everything is executed once in a valid order but this.
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
    return describe_circle(waits, place[rank]);
  }

  const Steps& steps_;
  const Needs& needs_;
  Inputs<bool> arrived_;
  std::vector<std::size_t> next_;  // by rank
};

}  // namespace flopcast
