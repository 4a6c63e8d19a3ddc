#include "sim/metrics/critical_cycle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/error/error.hpp"
#include "sim/lower/stage_links.hpp"
#include "sim/metrics/cycle_ratio.hpp"

namespace flopcast {

namespace {

using Constraint = TimedArc;

constexpr std::size_t kKinds = 4;

class SteadyGraph {
 public:
  SteadyGraph(const Program& program, const StepTimes& times, int turn)
      : program_(program), times_(times), links_(link_stages(program, times)), turn_(turn) {}

  // The constraints whose first action belongs to one of the microbatches begin .. begin + turn - 1.
  std::vector<Constraint> constraints_from(int begin) const;
  // The action behind a node, for some microbatch of its residue.
  Action action_of(std::size_t node) const {
    Action action;
    action.microbatch = static_cast<std::uint32_t>(node % static_cast<std::size_t>(turn_));
    action.kind = static_cast<ActionKind>(node / static_cast<std::size_t>(turn_) % kKinds);
    action.stage = static_cast<std::uint16_t>(node / static_cast<std::size_t>(turn_) / kKinds);
    return action;
  }
  int turn() const { return turn_; }
  std::size_t node_count() const {
    return static_cast<std::size_t>(program_.stage_count()) * kKinds * static_cast<std::size_t>(turn_);
  }
  int rank_of(std::size_t node) const {
    const Action action = action_of(node);
    return program_.rank_of(action.stage, action.microbatch);
  }

 private:
  std::size_t node_of(const Action& action) const {
    return (action.stage * kKinds + static_cast<std::size_t>(action.kind)) * static_cast<std::size_t>(turn_) +
           action.microbatch % static_cast<std::size_t>(turn_);
  }
  Ticks duration_of(const Action& action) const { return times_.stages[action.stage].of(action.kind); }
  Ticks latency_after(const Action& action) const;
  void add_transfer(const Action& action, const std::vector<ActionKind>& backward_of_stage,
                    std::vector<Constraint>& constraints) const;

  const Program& program_;
  const StepTimes& times_;
  std::vector<StageLinks> links_;
  int turn_;
};

Ticks SteadyGraph::latency_after(const Action& action) const {
  const StageLinks& links = links_[action.stage];
  if (action.kind == ActionKind::kForward) return links.to_next;
  return is_backward_like(action.kind) ? links.to_previous : 0;
}

void SteadyGraph::add_transfer(const Action& action, const std::vector<ActionKind>& backward_of_stage,
                               std::vector<Constraint>& constraints) const {
  const StageLinks& links = links_[action.stage];
  const bool forward = action.kind == ActionKind::kForward;
  if (forward ? !links.next_is_remote() : !(is_backward_like(action.kind) && links.previous_is_remote())) return;
  Action consumer = action;
  consumer.stage = static_cast<std::uint16_t>(forward ? action.stage + 1 : action.stage - 1);
  if (!forward) consumer.kind = backward_of_stage[consumer.stage];
  constraints.push_back({node_of(action), node_of(consumer), duration_of(action) + latency_after(action), 0});
}

std::vector<Constraint> SteadyGraph::constraints_from(int begin) const {
  std::vector<ActionKind> backward_of_stage(links_.size(), ActionKind::kBackward);
  for (const std::vector<Action>& actions : program_.ranks) {
    for (const Action& action : actions) {
      if (is_backward_like(action.kind)) backward_of_stage[action.stage] = action.kind;
    }
  }
  std::vector<Constraint> constraints;
  for (const std::vector<Action>& actions : program_.ranks) {
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      const auto microbatch = static_cast<int>(action.microbatch);
      if (microbatch < begin || microbatch >= begin + turn_) continue;
      add_transfer(action, backward_of_stage, constraints);
      if (index + 1 == actions.size()) continue;
      const Action& next = actions[index + 1];
      const Ticks occupied = duration_of(action) + (times_.blocking_sends ? latency_after(action) : 0);
      constraints.push_back({node_of(action), node_of(next), occupied, static_cast<int>(next.microbatch) - microbatch});
    }
  }
  std::sort(constraints.begin(), constraints.end(),
            [](const Constraint& a, const Constraint& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
  return constraints;
}

bool has_pairs(const Program& program) {
  for (const std::vector<Action>& actions : program.ranks) {
    if (std::any_of(actions.begin(), actions.end(), [](const Action& action) { return action.overlaps_next; })) {
      return true;
    }
  }
  return false;
}

// A replica's turn repeats the same few actions: the shortest stretch that does.
void keep_one_round(const SteadyGraph& graph, std::vector<Constraint>& cycle) {
  const auto is_alike = [&graph](const Constraint& a, const Constraint& b) {
    const Action first = graph.action_of(a.from);
    const Action second = graph.action_of(b.from);
    return first.stage == second.stage && first.kind == second.kind && a.time == b.time && a.advance == b.advance;
  };
  for (std::size_t length = 1; length < cycle.size(); ++length) {
    if (cycle.size() % length != 0) continue;
    const auto repeat = cycle.begin() + static_cast<std::ptrdiff_t>(length);
    if (!std::equal(repeat, cycle.end(), cycle.begin(), is_alike)) continue;
    cycle.erase(repeat, cycle.end());
    return;
  }
}

// The actions of one rank in a turn, in order, when they fill the time of `critical`; empty otherwise.
std::vector<Constraint> busiest_rank(const SteadyGraph& graph, const std::vector<Constraint>& constraints, int ranks,
                                     const CriticalCycle& critical) {
  std::vector<std::vector<Constraint>> own(static_cast<std::size_t>(ranks));
  for (const Constraint& constraint : constraints) {
    const int rank = graph.rank_of(constraint.from);
    if (rank == graph.rank_of(constraint.to)) own[static_cast<std::size_t>(rank)].push_back(constraint);
  }
  for (const std::vector<Constraint>& of_rank : own) {
    if (of_rank.empty()) continue;
    Ticks time = 0;
    int advance = 0;
    for (const Constraint& constraint : of_rank) {
      time += constraint.time;
      advance += constraint.advance;
    }
    const double busy = static_cast<double>(time) * critical.microbatches;
    if (busy != static_cast<double>(critical.time) * advance) continue;
    std::vector<Constraint> ordered = {of_rank.front()};
    while (ordered.size() < of_rank.size()) {
      const auto next = std::find_if(of_rank.begin(), of_rank.end(), [&](const Constraint& constraint) {
        return constraint.from == ordered.back().to;
      });
      FLOPCAST_CHECK(next != of_rank.end());
      ordered.push_back(*next);
    }
    keep_one_round(graph, ordered);
    return ordered;
  }
  return {};
}

CriticalCycle name_cycle(const SteadyGraph& graph, std::vector<Constraint> cycle) {
  const auto is_before = [](const Constraint& a, const Constraint& b) { return a.from < b.from; };
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end(), is_before), cycle.end());
  CriticalCycle named;
  // Numbers that fit the residues, so that a replica's microbatches are its own, and none below 0.
  const int first = static_cast<int>(graph.action_of(cycle.front().from).microbatch);
  int lowest = 0;
  for (const Constraint& constraint : cycle) {
    lowest = std::min(lowest, named.microbatches);
    named.time += constraint.time;
    named.microbatches += constraint.advance;
  }
  int microbatch = first;
  while (microbatch + lowest < 0) microbatch += graph.turn();
  for (const Constraint& constraint : cycle) {
    CriticalCycle::Step step{graph.rank_of(constraint.from), graph.action_of(constraint.from)};
    step.action.microbatch = static_cast<std::uint32_t>(microbatch);
    named.steps.push_back(step);
    microbatch += constraint.advance;
  }
  return named;
}

}  // namespace

int microbatches_per_turn(const Program& program) {
  return std::accumulate(program.replicas_of_stage.begin(), program.replicas_of_stage.end(), 1,
                         [](int turn, int replicas) { return std::lcm(turn, replicas); });
}

std::optional<int> CriticalCycle::only_rank() const {
  const bool same =
      std::all_of(steps.begin(), steps.end(), [this](const Step& step) { return step.rank == steps.front().rank; });
  return same ? std::optional(steps.front().rank) : std::nullopt;
}

std::string describe(const CriticalCycle& cycle) {
  constexpr std::size_t kMostShown = 12;
  constexpr std::size_t kShownAtEachEnd = 4;
  const std::size_t count = cycle.steps.size();
  std::string text;
  for (std::size_t index = 0; index < count; ++index) {
    const bool is_inner = index >= kShownAtEachEnd && index + kShownAtEachEnd < count;
    if (count <= kMostShown || !is_inner) {
      text += to_string(cycle.steps[index].action) + " ";
    } else if (index == kShownAtEachEnd) {
      text += "… ";
    }
  }
  text.back() = ',';
  Action again = cycle.steps.front().action;
  again.microbatch += static_cast<std::uint32_t>(cycle.microbatches);
  return text + " then " + to_string(again);
}

std::optional<CriticalCycle> critical_cycle(const std::function<Program(int microbatches)>& generate,
                                            const StepTimes& times) {
  const Program shape = generate(1);
  const int turn = microbatches_per_turn(shape);
  // Far enough from both ends: warm-ups are at most two microbatches a rank.
  constexpr int kStartPerRank = 4;
  const int start = kStartPerRank * shape.rank_count() * turn;
  const Program program = generate(2 * (start + turn));
  if (has_pairs(program)) return std::nullopt;
  const SteadyGraph graph(program, times, turn);
  const std::vector<Constraint> constraints = graph.constraints_from(start);
  if (constraints != graph.constraints_from(start + turn)) return std::nullopt;
  const std::vector<Constraint> cycle = maximum_ratio_cycle(constraints, graph.node_count());
  if (cycle.empty()) return std::nullopt;
  const CriticalCycle critical = name_cycle(graph, cycle);
  const std::vector<Constraint> alone = busiest_rank(graph, constraints, program.rank_count(), critical);
  return alone.empty() ? critical : name_cycle(graph, alone);
}

}  // namespace flopcast
