#include "sim/program/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "sim/program/needs.hpp"

namespace flopcast {

namespace {

ScheduleFault fault_of(std::string reason, std::optional<int> rank = std::nullopt) {
  ScheduleFault fault;
  fault.rank = rank;
  fault.reason = std::move(reason);
  return fault;
}

// The actions of a program in the form that DeadlockSearch expects; an overlapped pair is one step.
class ProgramSteps {
 public:
  ProgramSteps(const Program& program, const Needs& needs) : program_(program), needs_(needs) {}

  std::size_t size(std::size_t rank) const { return program_.ranks[rank].size(); }
  std::size_t width(std::size_t rank, std::size_t next) const {
    return program_.ranks[rank][next].overlaps_next ? 2 : 1;
  }
  template <class Visit>
  void for_each_action(std::size_t rank, std::size_t next, const Visit& visit) const {
    const std::vector<Action>& actions = program_.ranks[rank];
    visit(actions[next]);
    if (actions[next].overlaps_next) visit(actions[next + 1]);
  }
  template <class Visit>
  void for_each_made(std::size_t rank, std::size_t next, const Visit& visit) const {
    for_each_action(rank, next, [&](const Action& action) {
      if (needs_.result_of(action)) visit(*needs_.produced_by(action));
    });
  }
  int place(std::size_t rank, std::size_t next) const { return step_of(program_.ranks[rank], next); }
  std::string text(std::size_t rank, std::size_t next) const { return to_string(program_.ranks[rank][next]); }
  // A gradient comes from B or I, whichever the sending stage executes.
  std::string provider(const StageTransfer& transfer) const {
    for (const Action& action : program_.ranks[needs_.sender(transfer)]) {
      if (needs_.produced_by(action) == transfer) return to_string(action);
    }
    return {};
  }

 private:
  const Program& program_;
  const Needs& needs_;
};

std::optional<ScheduleFault> find_deadlock(const Program& program) {
  const Needs needs(program);
  ByStage<std::size_t> microbatches(needs.stage_count(), 0);
  for (const std::vector<Action>& actions : program.ranks) {
    for (const Action& action : actions) microbatches[action.stage] += action.kind == ActionKind::kForward ? 1 : 0;
  }
  const ProgramSteps steps(program, needs);
  return DeadlockSearch(steps, needs, program.ranks.size(), microbatches).run();
}

// An action in the order of its rank.
struct Position {
  int rank = 0;
  std::size_t index = 0;
};

// Kinds of action that have run for one microbatch on one stage, one bit per kind.
using Progress = std::uint8_t;
constexpr Progress bit(ActionKind kind) {
  return static_cast<Progress>(1U << static_cast<unsigned>(kind));
}

class Validator {
 public:
  explicit Validator(const Program& program) : program_(program) {}

  std::optional<ScheduleFault> find_fault() {
    using Check = std::optional<ScheduleFault> (Validator::*)();
    for (const Check check :
         {&Validator::check_chains, &Validator::check_ranks_and_stages, &Validator::check_pairs,
          &Validator::check_forward_counts, &Validator::check_orders, &Validator::check_completeness}) {
      if (std::optional<ScheduleFault> fault = (this->*check)()) return fault;
    }
    return find_deadlock(program_);
  }

 private:
  const std::vector<Action>& actions_of(int rank) const { return program_.ranks[rank]; }
  const Action& action_at(const Position& position) const { return actions_of(position.rank)[position.index]; }
  Progress& progress_of(const Action& action) { return progress_[offset_[action.stage] + action.microbatch]; }

  ScheduleFault fault_at(const Position& position, std::string reason) const {
    ScheduleFault fault = fault_of(std::move(reason), position.rank);
    fault.step = step_of(actions_of(position.rank), position.index);
    fault.cell = to_string(action_at(position));
    return fault;
  }

  std::optional<ScheduleFault> check_chains();
  std::optional<ScheduleFault> check_ranks_and_stages();
  std::optional<ScheduleFault> check_stage_map();
  std::optional<ScheduleFault> check_pairs();
  std::optional<ScheduleFault> check_forward_counts();
  std::optional<ScheduleFault> check_orders();
  std::optional<ScheduleFault> check_completeness();

  void find_largest_microbatches();
  ScheduleFault explain_forward_count(int stage, std::size_t count);
  std::string why_out_of_order(const Action& action);

  const Program& program_;
  ByStage<int> chain_of_stage_;
  ByChain<Position> last_microbatch_;   // indexed by chain: where its largest microbatch index first appears
  ByStage<std::size_t> forward_count_;  // indexed by stage
  ByStage<std::size_t> offset_;         // indexed by stage: where its microbatches begin in progress_
  std::vector<Progress> progress_;
};

std::optional<ScheduleFault> Validator::check_chains() {
  int next_stage = 0;
  for (std::size_t chain = 0; chain < program_.chains.size(); ++chain) {
    const auto [first, last] = program_.chains[chain];
    if (first != next_stage || last < first || last >= program_.stage_count()) {
      return fault_of(
          fmt::format("chain {}-{} is invalid: chains must be contiguous, and the next one starts at stage {} of {}",
                      first, last, next_stage, program_.stage_count()));
    }
    chain_of_stage_.resize(static_cast<std::size_t>(last) + 1, static_cast<int>(chain));
    next_stage = last + 1;
  }
  if (next_stage == program_.stage_count() && next_stage > 0) return std::nullopt;
  return fault_of(fmt::format("the chains cover {} of {} stages", next_stage, program_.stage_count()));
}

std::optional<ScheduleFault> Validator::check_stage_map() {
  if (program_.replicas_of_stage.size() != (program_.replicas_of_stage.empty() ? 0 : program_.rank_of_stage.size())) {
    return fault_of(fmt::format("replica counts are given for {} stages instead of {}",
                                program_.replicas_of_stage.size(), program_.stage_count()));
  }
  ByRank<int> replicated_stage(program_.ranks.size(), -1);
  for (int stage = 0; stage < program_.stage_count(); ++stage) {
    const int rank = program_.rank_of_stage[stage];
    const int replicas = program_.replicas(stage);
    if (rank < 0 || replicas < 1 || rank > program_.rank_count() - replicas) {
      return fault_of(fmt::format("no rank executes stage {}", stage));
    }
    if (replicas == 1) continue;
    std::fill_n(replicated_stage.begin() + rank, replicas, stage);
  }
  for (int stage = 0; stage < program_.stage_count(); ++stage) {
    const int first = program_.rank_of_stage[stage];
    for (int rank = first; rank < first + program_.replicas(stage); ++rank) {
      const int other = replicated_stage[rank];
      if (other == -1 || other == stage) continue;
      return fault_of(fmt::format("the rank holds a replica of stage {} and therefore cannot execute stage {} as well",
                                  other, stage),
                      rank);
    }
  }
  return std::nullopt;
}

std::optional<ScheduleFault> Validator::check_ranks_and_stages() {
  if (std::optional<ScheduleFault> fault = check_stage_map()) return fault;
  for (int rank = 0; rank < program_.rank_count(); ++rank) {
    const std::vector<Action>& actions = actions_of(rank);
    if (actions.empty()) return fault_of("the rank has no actions", rank);
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const int stage = actions[index].stage;
      if (stage >= program_.stage_count()) {
        return fault_at({rank, index}, fmt::format("the program has {} stages", program_.stage_count()));
      }
      const int holder = program_.rank_of(stage, actions[index].microbatch);
      if (holder == rank) continue;
      const int replicas = program_.replicas(stage);
      if (replicas == 1) {
        return fault_at({rank, index},
                        fmt::format("stage {} belongs to rank {}; n adjacent ranks may share a stage only if "
                                    "microbatch k runs on replica k mod n, forward and backward",
                                    stage, holder));
      }
      return fault_at(
          {rank, index},
          fmt::format("the {} replicas of stage {} take microbatches in turn, and microbatch {} belongs to rank {}",
                      replicas, stage, actions[index].microbatch, holder));
    }
  }
  return std::nullopt;
}

std::optional<ScheduleFault> Validator::check_pairs() {
  for (int rank = 0; rank < program_.rank_count(); ++rank) {
    const std::vector<Action>& actions = actions_of(rank);
    for (std::size_t index = 0; index < actions.size(); ++index) {
      if (!actions[index].overlaps_next) continue;
      const Position position{rank, index};
      if (index + 1 == actions.size()) return fault_at(position, "the overlapped pair has no second half");
      const Action& first = actions[index];
      const Action& second = actions[++index];
      const bool mixed = (first.kind == ActionKind::kForward && is_backward_like(second.kind)) ||
                         (second.kind == ActionKind::kForward && is_backward_like(first.kind));
      if (mixed && !second.overlaps_next) continue;
      return fault_at(position, fmt::format("{} and {} cannot overlap: a pair is one F and one B or I",
                                            to_string(first), to_string(second)));
    }
  }
  return std::nullopt;
}

void Validator::find_largest_microbatches() {
  std::vector<bool> seen(program_.chains.size(), false);
  last_microbatch_.resize(program_.chains.size());
  for (int rank = 0; rank < program_.rank_count(); ++rank) {
    const std::vector<Action>& actions = actions_of(rank);
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const auto chain = static_cast<std::size_t>(chain_of_stage_[actions[index].stage]);
      if (seen[chain] && actions[index].microbatch <= action_at(last_microbatch_[chain]).microbatch) continue;
      seen[chain] = true;
      last_microbatch_[chain] = {rank, index};
    }
  }
}

// Only counts, so that a stray microbatch index of a hundred million costs no memory.
std::optional<ScheduleFault> Validator::check_forward_counts() {
  find_largest_microbatches();
  forward_count_.assign(static_cast<std::size_t>(program_.stage_count()), 0);
  for (const std::vector<Action>& actions : program_.ranks) {
    for (const Action& action : actions) forward_count_[action.stage] += action.kind == ActionKind::kForward ? 1 : 0;
  }
  const std::size_t action_count = program_.action_count();
  std::size_t offset = 0;
  for (int stage = 0; stage < program_.stage_count(); ++stage) {
    const Position& last = last_microbatch_[chain_of_stage_[stage]];
    const std::size_t count = std::size_t{action_at(last).microbatch} + 1;
    if (count > action_count) {
      return fault_at(last,
                      fmt::format("microbatches must be numbered from 0 without gaps, but there are only {} actions",
                                  action_count));
    }
    if (forward_count_[stage] != count) return explain_forward_count(stage, count);
    offset_.push_back(offset);
    offset += count;
  }
  progress_.assign(offset, 0);
  return std::nullopt;
}

ScheduleFault Validator::explain_forward_count(int stage, std::size_t count) {
  const int first = program_.rank_of_stage[stage];
  std::vector<bool> seen(count, false);
  for (int rank = first; rank < first + program_.replicas(stage); ++rank) {
    const std::vector<Action>& actions = actions_of(rank);
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      if (action.stage != stage || action.kind != ActionKind::kForward) continue;
      if (seen[action.microbatch])
        return fault_at({rank, index}, fmt::format("{} runs a second time", to_string(action)));
      seen[action.microbatch] = true;
    }
  }
  const auto missing = static_cast<std::size_t>(std::find(seen.begin(), seen.end(), false) - seen.begin());
  const Position& last = last_microbatch_[chain_of_stage_[stage]];
  return fault_of(fmt::format("{}F{} never runs: the chain has microbatches 0 to {} ({} on rank {})", stage, missing,
                              count - 1, to_string(action_at(last)), last.rank),
                  program_.rank_of(stage, static_cast<std::uint32_t>(missing)));
}

std::string Validator::why_out_of_order(const Action& action) {
  const Progress done = progress_of(action);
  const auto has = [&](ActionKind kind) { return (done & bit(kind)) != 0; };
  const auto explain = [&](std::string_view words, ActionKind other) {
    return fmt::format("{} runs {} {}{}{}", to_string(action), words, action.stage, letter_of(other),
                       action.microbatch);
  };
  const bool whole = action.kind == ActionKind::kBackward;
  if (has(action.kind)) return to_string(action) + " runs a second time";
  if (action.kind == ActionKind::kForward) return {};
  if (!has(ActionKind::kForward)) return explain("before", ActionKind::kForward);
  const ActionKind rival = whole ? ActionKind::kInputGradient : ActionKind::kBackward;
  if (has(rival)) return explain("in addition to", rival) + ": B combines I and W; zero-bubble papers write B for I";
  const bool needs_input_gradient = action.kind == ActionKind::kWeightGradient;
  if (needs_input_gradient && !has(ActionKind::kInputGradient)) return explain("before", ActionKind::kInputGradient);
  return {};
}

std::optional<ScheduleFault> Validator::check_orders() {
  for (int rank = 0; rank < program_.rank_count(); ++rank) {
    const std::vector<Action>& actions = actions_of(rank);
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const std::size_t last = index + (actions[index].overlaps_next ? 1 : 0);
      for (std::size_t half = index; half <= last; ++half) {
        std::string reason = why_out_of_order(actions[half]);
        if (!reason.empty()) return fault_at({rank, half}, std::move(reason));
      }
      // Marked only after both halves are checked: neither half of a pair sees the other's result.
      for (std::size_t half = index; half <= last; ++half) progress_of(actions[half]) |= bit(actions[half].kind);
      index = last;
    }
  }
  return std::nullopt;
}

std::optional<ScheduleFault> Validator::check_completeness() {
  for (int stage = 0; stage < program_.stage_count(); ++stage) {
    for (std::size_t microbatch = 0; microbatch < forward_count_[stage]; ++microbatch) {
      const Progress done = progress_[offset_[stage] + microbatch];
      const bool split = (done & bit(ActionKind::kInputGradient)) != 0;
      if (split ? (done & bit(ActionKind::kWeightGradient)) != 0 : (done & bit(ActionKind::kBackward)) != 0) continue;
      return fault_of(fmt::format("{}{}{} never runs", stage, split ? "W" : "B", microbatch),
                      program_.rank_of(stage, static_cast<std::uint32_t>(microbatch)));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ScheduleFault> find_fault(const Program& program) {
  return Validator(program).find_fault();
}

ScheduleFault describe_cycle(const std::vector<BlockedCell>& waits, std::size_t begin) {
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

std::optional<std::string> hint_two_chains(const Program& program) {
  const int stages = program.stage_count();
  const std::vector<int>& ranks = program.rank_of_stage;
  const bool mirrored = stages % 2 == 0 && std::equal(ranks.begin(), ranks.end(), ranks.rbegin());
  if (program.chains.size() != 1 || !mirrored) return std::nullopt;
  Program twice = program;
  const int half = stages / 2;
  twice.chains = {{.first_stage = 0, .last_stage = half - 1}, {.first_stage = half, .last_stage = stages - 1}};
  if (find_fault(twice)) return std::nullopt;
  return fmt::format("0-{},{}-{}", half - 1, half, stages - 1);
}

std::string render_fault(const ScheduleFault& fault) {
  std::string text;
  if (fault.rank) text += fmt::format("rank {}", *fault.rank);
  if (fault.step) text += fmt::format(", step {}", *fault.step);
  if (!fault.cell.empty()) text += fmt::format(" ({})", fault.cell);
  return text.empty() ? fault.reason : text + ": " + fault.reason;
}

}  // namespace flopcast
