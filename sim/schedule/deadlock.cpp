#include "sim/schedule/deadlock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

// Executes the ranks in any order that the dependencies allow: which one does not matter, because an action that can
// run stays able to run.
class Execution {
 public:
  explicit Execution(const Program& program)
      : program_(program), next_(program.ranks.size(), 0), is_runnable_(program.ranks.size(), true) {
    for (const Chain& chain : program.chains) {
      chain_of_stage_.resize(static_cast<std::size_t>(chain.last_stage) + 1, chain);
    }
    offset_.assign(chain_of_stage_.size(), 0);
    for (const std::vector<Action>& actions : program.ranks) {
      for (const Action& action : actions) offset_[action.stage] += action.kind == ActionKind::kForward ? 1 : 0;
    }
    std::size_t offset = 0;
    for (std::size_t& begin : offset_) {
      const std::size_t microbatches = begin;
      begin = offset;
      offset += microbatches;
    }
    forward_done_.assign(offset, false);
    gradient_done_.assign(offset, false);
  }

  std::optional<ScheduleFault> run();

 private:
  const std::vector<Action>& actions_of(int rank) const { return program_.ranks[static_cast<std::size_t>(rank)]; }
  // The flag of what `action` produces for its neighbour stage: the activation, or its gradient.
  std::vector<bool>::reference is_done(const Action& action) {
    std::vector<bool>& done = action.kind == ActionKind::kForward ? forward_done_ : gradient_done_;
    return done[offset_[action.stage] + action.microbatch];
  }

  std::optional<Action> awaited_by(const Action& action);
  std::optional<Action> awaited_at(int rank);
  void advance(int rank, std::vector<int>& runnable);
  Action as_ordered(const Action& awaited) const;
  ScheduleFault describe_deadlock(int rank);

  const Program& program_;
  std::vector<Chain> chain_of_stage_;
  std::vector<std::size_t> offset_;  // by stage: where its microbatches begin in the flags
  std::vector<bool> forward_done_;
  std::vector<bool> gradient_done_;
  std::vector<std::size_t> next_;  // by rank: the action it executes next
  std::vector<bool> is_runnable_;  // by rank
};

// The first result of another stage that `action` still lacks.
std::optional<Action> Execution::awaited_by(const Action& action) {
  const Chain& chain = chain_of_stage_[action.stage];
  Action source = action;
  source.overlaps_next = false;
  if (action.kind == ActionKind::kForward) {
    if (action.stage == chain.first_stage) return std::nullopt;
    --source.stage;
    return is_done(source) ? std::nullopt : std::optional(source);
  }
  if (!is_backward_like(action.kind) || action.stage == chain.last_stage) return std::nullopt;
  ++source.stage;
  return is_done(source) ? std::nullopt : std::optional(source);
}

std::optional<Action> Execution::awaited_at(int rank) {
  const std::vector<Action>& actions = actions_of(rank);
  const std::size_t index = next_[static_cast<std::size_t>(rank)];
  if (index == actions.size()) return std::nullopt;
  std::optional<Action> awaited = awaited_by(actions[index]);
  if (!awaited && actions[index].overlaps_next) awaited = awaited_by(actions[index + 1]);
  return awaited;
}

// Executes `rank` until it blocks or ends. Whoever may now go on is appended to `runnable`.
void Execution::advance(int rank, std::vector<int>& runnable) {
  const std::vector<Action>& actions = actions_of(rank);
  std::size_t& index = next_[static_cast<std::size_t>(rank)];
  while (index < actions.size() && !awaited_at(rank)) {
    for (bool more = true; more; ++index) {
      const Action& action = actions[index];
      more = action.overlaps_next;
      if (action.kind == ActionKind::kWeightGradient) continue;
      is_done(action) = true;
      const Chain& chain = chain_of_stage_[action.stage];
      const int consumer = action.stage + (action.kind == ActionKind::kForward ? 1 : -1);
      if (consumer < chain.first_stage || consumer > chain.last_stage) continue;
      const int neighbour = program_.rank_of_stage[static_cast<std::size_t>(consumer)];
      if (neighbour == rank || is_runnable_[static_cast<std::size_t>(neighbour)]) continue;
      is_runnable_[static_cast<std::size_t>(neighbour)] = true;
      runnable.push_back(neighbour);
    }
  }
}

std::optional<ScheduleFault> Execution::run() {
  std::vector<int> runnable;
  for (int rank = program_.rank_count() - 1; rank >= 0; --rank) runnable.push_back(rank);
  while (!runnable.empty()) {
    const int rank = runnable.back();
    runnable.pop_back();
    is_runnable_[static_cast<std::size_t>(rank)] = false;
    advance(rank, runnable);
  }
  for (int rank = 0; rank < program_.rank_count(); ++rank) {
    if (awaited_at(rank)) return describe_deadlock(rank);
  }
  return std::nullopt;
}

// Who waits for a gradient waits for B or I, whichever the stage's own order holds.
Action Execution::as_ordered(const Action& awaited) const {
  for (const Action& action : actions_of(program_.rank_of_stage[awaited.stage])) {
    const bool same_kind = (action.kind == ActionKind::kForward) == (awaited.kind == ActionKind::kForward);
    const bool produces = same_kind && action.kind != ActionKind::kWeightGradient;
    if (produces && action.stage == awaited.stage && action.microbatch == awaited.microbatch) return action;
  }
  return awaited;
}

// Follows who waits for whom until a rank comes up again: everything is executed once in a valid order but this.
ScheduleFault Execution::describe_deadlock(int rank) {
  std::vector<BlockedCell> waits;
  std::vector<std::size_t> place(program_.ranks.size(), program_.ranks.size());
  while (place[static_cast<std::size_t>(rank)] == program_.ranks.size()) {
    place[static_cast<std::size_t>(rank)] = waits.size();
    const std::vector<Action>& actions = actions_of(rank);
    const std::size_t index = next_[static_cast<std::size_t>(rank)];
    const std::optional<Action> awaited = awaited_at(rank);
    FLOPCAST_CHECK(awaited.has_value());
    const int awaited_rank = program_.rank_of_stage[awaited->stage];
    waits.push_back({.place = {.rank = rank, .step = step_of(actions, index)},
                     .cell = to_string(actions[index]),
                     .awaited = to_string(as_ordered(*awaited)),
                     .awaited_rank = awaited_rank});
    rank = awaited_rank;
  }
  return describe_circle(waits, place[static_cast<std::size_t>(rank)]);
}

}  // namespace

ScheduleFault describe_circle(const std::vector<BlockedCell>& waits, std::size_t begin) {
  constexpr std::size_t kNamed = 8;
  const BlockedCell& first = waits.at(begin);
  ScheduleFault fault;
  fault.rank = first.place.rank;
  fault.step = first.place.step;
  fault.cell = first.cell;
  fault.reason = "deadlock:";
  for (std::size_t index = begin; index < waits.size(); ++index) {
    const BlockedCell& wait = waits[index];
    fault.cycle.push_back(wait.place);
    if (index - begin >= kNamed) continue;
    fault.reason += fmt::format("{} rank {} at step {} ({}) waits for {} of rank {}", index == begin ? "" : ",",
                                wait.place.rank, wait.place.step, wait.cell, wait.awaited, wait.awaited_rank);
  }
  if (fault.cycle.size() > kNamed) fault.reason += fmt::format(", and {} more ranks", fault.cycle.size() - kNamed);
  return fault;
}

std::optional<ScheduleFault> find_deadlock(const Program& program) {
  return Execution(program).run();
}

}  // namespace flopcast
