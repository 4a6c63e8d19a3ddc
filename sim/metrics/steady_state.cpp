#include "sim/metrics/metrics.hpp"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <boost/graph/howard_cycle_ratio.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/text/by_member.hpp"
#include "base/text/error.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/needs.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kNoNode = std::numeric_limits<std::size_t>::max();

class Builder {
 public:
  explicit Builder(const Timeline& timeline) : timeline_(timeline), transfers_(timeline) {
    graph_.nodes.push_back(SpanNode{});
  }

  SpanGraph build() {
    graph_.node_of.resize(timeline_.ranks.size());
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) number_rank(rank);
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) link_rank(rank);
    return std::move(graph_);
  }

 private:
  void number_rank(std::size_t rank);
  void link_rank(std::size_t rank);
  void link_transfer(const Span& span, std::size_t node);
  void link_flush(std::size_t node, std::size_t compute, std::size_t flush);
  void link(std::size_t from, std::size_t to, Ticks lag);
  std::size_t add_node(const Span& span, std::size_t rank);
  std::size_t node_of(const Span& span, std::size_t rank);

  static std::uint64_t key(const Action& action, bool send) {
    return (std::uint64_t{action.microbatch} << 19) | (std::uint64_t{action.stage} << 3) |
           (static_cast<std::uint64_t>(action.kind) << 1) | std::uint64_t{send};
  }

  const Timeline& timeline_;
  AwaitedTransfers transfers_;
  SpanGraph graph_;
  std::unordered_map<std::uint64_t, std::size_t> producers_;  // nodes of transferred results, indexed by key
  std::size_t embedding_ = kNoNode;
  std::size_t norm_ = kNoNode;
};

std::size_t Builder::add_node(const Span& span, std::size_t rank) {
  graph_.nodes.push_back(SpanNode{&span, static_cast<int>(rank)});
  return graph_.nodes.size() - 1;
}

std::size_t Builder::node_of(const Span& span, std::size_t rank) {
  if (span.kind != SpanKind::kEmbeddingReduction && span.kind != SpanKind::kGradientNorm) return add_node(span, rank);
  std::size_t& shared = span.kind == SpanKind::kGradientNorm ? norm_ : embedding_;
  if (shared == kNoNode) shared = add_node(span, rank);
  return shared;
}

void Builder::number_rank(std::size_t rank) {
  const std::vector<Span>& spans = timeline_.ranks[rank];
  bool second_half = false;
  std::size_t pass = kNoNode;
  for (const Span& span : spans) {
    if (is_exchange(span.kind) && pass != kNoNode) {
      graph_.node_of[rank].push_back(pass);  // an exchange is part of its pass
      continue;
    }
    const std::size_t node = second_half ? graph_.node_of[rank].back() : node_of(span, rank);
    graph_.node_of[rank].push_back(node);
    second_half = is_action(span.kind) && span.action.overlaps_next;
    if (is_action(span.kind) || span.kind == SpanKind::kSend) {
      producers_[key(span.action, span.kind == SpanKind::kSend)] = node;
      pass = node;
    }
  }
}

void Builder::link(std::size_t from, std::size_t to, Ticks lag) {
  const Ticks end = from == SpanGraph::kSource ? 0 : graph_.nodes[from].span->end;
  graph_.links.push_back(SpanLink{from, to, lag, graph_.nodes[to].span->start - end - lag});
}

void Builder::link_transfer(const Span& span, std::size_t node) {
  const Transfer* transfer = transfers_.find(span.action);
  if (transfer == nullptr) return;
  const auto send = producers_.find(key(transfer->produced_by, true));
  if (send != producers_.end()) {
    link(send->second, node, 0);
    return;
  }
  const auto action = producers_.find(key(transfer->produced_by, false));
  if (action != producers_.end()) link(action->second, node, transfer->end - transfer->start);
}

// `compute` and `flush` are the nodes that the rank started last on either stream.
void Builder::link_flush(std::size_t node, std::size_t compute, std::size_t flush) {
  const Ticks start = graph_.nodes[node].span->start;
  if (compute == kNoNode && flush == kNoNode) link(SpanGraph::kSource, node, 0);
  if (flush != kNoNode) link(flush, node, 0);
  if (compute == kNoNode) return;
  const Ticks on_links = std::max(Ticks{0}, graph_.nodes[compute].span->end - start);
  const bool queued = flush != kNoNode && graph_.nodes[flush].span->end == start;
  if (on_links == 0 || !queued) link(compute, node, -on_links);
}

void Builder::link_rank(std::size_t rank) {
  const std::vector<Span>& spans = timeline_.ranks[rank];
  std::size_t last_on_compute = kNoNode;
  std::size_t last_of_flush = kNoNode;
  for (std::size_t index = 0; index < spans.size(); ++index) {
    const Span& span = spans[index];
    const std::size_t node = graph_.node_of[rank][index];
    if (is_exchange(span.kind)) continue;
    if (is_action(span.kind)) link_transfer(span, node);
    if (is_action(span.kind) || span.kind == SpanKind::kSend) {
      if (node == last_on_compute) continue;
      link(last_on_compute == kNoNode ? SpanGraph::kSource : last_on_compute, node, 0);
      last_on_compute = node;
    } else {
      link_flush(node, last_on_compute, last_of_flush);
      last_of_flush = node;
    }
  }
}

}  // namespace

SpanGraph build_span_graph(const Timeline& timeline) {
  return Builder(timeline).build();
}

namespace {

using WaitGraph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, SpanLink>;

// Predecessor of each node on the chain with the least wait.
std::vector<std::size_t> least_wait_predecessors(const SpanGraph& spans, std::vector<Ticks>& wait) {
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  edges.reserve(spans.links.size());
  for (const SpanLink& link : spans.links) edges.emplace_back(link.from, link.to);
  const WaitGraph graph(boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(), spans.links.begin(),
                        spans.nodes.size());
  std::vector<std::size_t> predecessor(spans.nodes.size());
  std::iota(predecessor.begin(), predecessor.end(), std::size_t{0});
  wait.assign(spans.nodes.size(), 0);
  constexpr Ticks kUnreached = std::numeric_limits<Ticks>::max();
  try {
    boost::dag_shortest_paths(
        graph, SpanGraph::kSource,
        boost::distance_map(boost::make_iterator_property_map(wait.begin(), get(boost::vertex_index, graph)))
            .predecessor_map(boost::make_iterator_property_map(predecessor.begin(), get(boost::vertex_index, graph)))
            .weight_map(get(&SpanLink::wait, graph))
            .distance_inf(kUnreached)
            .distance_zero(Ticks{0}));
  } catch (const boost::not_a_dag&) {
    // Only an edited file can contain such a timeline.
    throw ConfigError({"timeline",
                       "its actions wait for each other in a cycle: one begins before an action that it needs", "",
                       "give an unmodified timeline written by flopcast timeline, simulate or run"});
  }
  return predecessor;
}

}  // namespace

Ticks CriticalPath::total() const {
  return std::accumulate(time_by_kind.begin(), time_by_kind.end(), wait + lag);
}

CriticalPath critical_path(const Timeline& timeline) {
  CriticalPath path;
  const SpanGraph spans = build_span_graph(timeline);
  if (spans.nodes.size() == 1) return path;
  std::vector<Ticks> wait;
  const std::vector<std::size_t> predecessor = least_wait_predecessors(spans, wait);
  const Ticks makespan = timeline.makespan();
  std::size_t node = SpanGraph::kSource;
  for (std::size_t candidate = 1; candidate < spans.nodes.size(); ++candidate) {
    if (spans.nodes[candidate].span->end != makespan) continue;
    if (node == SpanGraph::kSource || wait[candidate] < wait[node]) node = candidate;
  }
  Ticks next_start = makespan;
  Ticks next_wait = 0;
  while (node != SpanGraph::kSource) {
    const SpanNode& current = spans.nodes[node];
    FLOPCAST_CHECK(predecessor[node] != node);
    CriticalStep step;
    step.rank = current.rank;
    step.span = *current.span;
    const Ticks left = std::min(current.span->end, next_start - next_wait);
    step.time = left - current.span->start;
    step.lag = next_start - next_wait - left;
    step.wait = wait[node] - wait[predecessor[node]];
    path.wait += step.wait;
    path.lag += step.lag;
    path.time_by_kind.at(static_cast<std::size_t>(step.span.kind)) += step.time;
    next_start = step.span.start;
    next_wait = step.wait;
    path.steps.push_back(step);
    node = predecessor[node];
  }
  std::reverse(path.steps.begin(), path.steps.end());
  return path;
}

namespace {

struct Weights {
  double time = 0.0;
  double advance = 0.0;
  std::size_t arc = 0;
};
using CycleGraph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, Weights>;

std::vector<TimedArc> howard(const std::vector<TimedArc>& arcs, std::size_t nodes) {
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  std::vector<Weights> weights;
  for (std::size_t index = 0; index < arcs.size(); ++index) {
    edges.emplace_back(arcs[index].from, arcs[index].to);
    weights.push_back({static_cast<double>(arcs[index].time), static_cast<double>(arcs[index].advance), index});
  }
  const CycleGraph graph(boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(), weights.begin(), nodes);
  std::vector<boost::graph_traits<CycleGraph>::edge_descriptor> cycle;
  boost::maximum_cycle_ratio(graph, get(boost::vertex_index, graph), get(&Weights::time, graph),
                             get(&Weights::advance, graph), &cycle);
  std::vector<TimedArc> result;
  result.reserve(cycle.size());
  for (const auto& edge : cycle) result.push_back(arcs[graph[edge].arc]);
  return result;
}

struct Sums {
  Ticks time = 0;
  std::int64_t advance = 0;
};

Sums sums_of(const std::vector<TimedArc>& cycle) {
  Sums sums;
  for (const TimedArc& arc : cycle) {
    sums.time += arc.time;
    sums.advance += arc.advance;
  }
  return sums;
}

bool fits_into_64_bits(const std::vector<TimedArc>& arcs, const Sums& sums) {
  constexpr double kLargest = 4e18;
  double total = 0.0;
  for (const TimedArc& arc : arcs) {
    total += static_cast<double>(arc.time) * static_cast<double>(sums.advance) +
             std::abs(static_cast<double>(arc.advance)) * static_cast<double>(sums.time);
  }
  return total < kLargest;
}

// A cycle whose ratio exceeds that of `sums`; empty if there is none.
std::vector<TimedArc> better_cycle(const std::vector<TimedArc>& arcs, std::size_t nodes, const Sums& sums) {
  std::vector<std::int64_t> longest(nodes, 0);
  std::vector<std::size_t> last_arc(nodes, arcs.size());
  std::size_t raised = nodes;
  for (std::size_t round = 0; round <= nodes; ++round) {
    raised = nodes;
    for (std::size_t index = 0; index < arcs.size(); ++index) {
      const TimedArc& arc = arcs[index];
      const std::int64_t reached = longest[arc.from] + arc.time * sums.advance - arc.advance * sums.time;
      if (reached <= longest[arc.to]) continue;
      longest[arc.to] = reached;
      last_arc[arc.to] = index;
      raised = arc.to;
    }
    if (raised == nodes) return {};
  }
  // Walks back far enough to be on the cycle, then once around it.
  std::size_t node = raised;
  for (std::size_t step = 0; step < nodes; ++step) node = arcs[last_arc[node]].from;
  std::vector<TimedArc> cycle;
  const std::size_t end = node;
  do {
    cycle.push_back(arcs[last_arc[node]]);
    node = cycle.back().from;
  } while (node != end);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

}  // namespace

std::vector<TimedArc> maximum_ratio_cycle(const std::vector<TimedArc>& arcs, std::size_t nodes) {
  std::vector<TimedArc> cycle = howard(arcs, nodes);
  // Howard's algorithm misses cycles of zero time; any cycle beats a negative ratio.
  if (cycle.empty()) cycle = better_cycle(arcs, nodes, {-1, 1});
  while (!cycle.empty() && fits_into_64_bits(arcs, sums_of(cycle))) {
    std::vector<TimedArc> better = better_cycle(arcs, nodes, sums_of(cycle));
    if (better.empty()) break;
    cycle = std::move(better);
  }
  return cycle;
}

namespace {

using Constraint = TimedArc;

class SteadyGraph {
 public:
  SteadyGraph(const Program& program, const StepTimes& times, int turn)
      : program_(program), times_(times), needs_(needs_of(program, times)), turn_(turn) {}

  // Constraints whose first action belongs to one of the microbatches begin .. begin + turn - 1.
  std::vector<Constraint> constraints_from(int begin) const {
    std::vector<ActionKind> backward_of_stage(needs_.stage_count(), ActionKind::kBackward);
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
        constraints.push_back(
            {node_of(action), node_of(next), occupied, static_cast<int>(next.microbatch) - microbatch});
      }
    }
    std::sort(constraints.begin(), constraints.end(), [](const Constraint& a, const Constraint& b) {
      return a.from != b.from ? a.from < b.from : a.to < b.to;
    });
    return constraints;
  }

  // The action of a node, for some microbatch of its residue.
  Action action_of(std::size_t node) const {
    Action action;
    action.microbatch = static_cast<std::uint32_t>(node % static_cast<std::size_t>(turn_));
    action.kind = static_cast<ActionKind>(node / static_cast<std::size_t>(turn_) % kActionKinds.size());
    action.stage = static_cast<std::uint16_t>(node / static_cast<std::size_t>(turn_) / kActionKinds.size());
    return action;
  }
  int turn() const { return turn_; }
  std::size_t node_count() const {
    return static_cast<std::size_t>(program_.stage_count()) * kActionKinds.size() * static_cast<std::size_t>(turn_);
  }
  int rank_of(std::size_t node) const {
    const Action action = action_of(node);
    return program_.rank_of(action.stage, action.microbatch);
  }

 private:
  std::size_t node_of(const Action& action) const {
    return (action.stage * kActionKinds.size() + static_cast<std::size_t>(action.kind)) *
               static_cast<std::size_t>(turn_) +
           action.microbatch % static_cast<std::size_t>(turn_);
  }
  Ticks duration_of(const Action& action) const { return times_.stages[action.stage].of(action.kind); }
  Ticks latency_after(const Action& action) const { return needs_.result_latency(times_, action.kind, action.stage); }
  void add_transfer(const Action& action, const std::vector<ActionKind>& backward_of_stage,
                    std::vector<Constraint>& constraints) const {
    const Needs::Neighbour& to = needs_.result_of(action);
    if (!to.crosses) return;
    Action consumer = action;
    consumer.stage = to.stage;
    if (action.kind != ActionKind::kForward) consumer.kind = backward_of_stage[consumer.stage];
    constraints.push_back({node_of(action), node_of(consumer), duration_of(action) + latency_after(action), 0});
  }

  const Program& program_;
  const StepTimes& times_;
  Needs needs_;
  int turn_;
};

bool has_pairs(const Program& program) {
  return std::any_of(program.ranks.begin(), program.ranks.end(), [](const std::vector<Action>& actions) {
    return std::any_of(actions.begin(), actions.end(), where(&Action::overlaps_next, true));
  });
}

// A replica's turn repeats the same few actions; keeps the shortest stretch that repeats.
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

// The actions of one rank in a turn, in order, if they fill the time of `critical`; empty otherwise.
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
  // The microbatch numbers keep their residues, so that they belong to the right replicas, and are not negative.
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
  // Far enough from both ends: warm-ups take at most two microbatches per rank.
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

namespace {

constexpr int kWindowPerRank = 4;

// At least 4 microbatches per rank, in whole turns of the replicas and whole rounds of the cycle that determines the
// period.
int window_of(const Program& shape, const std::optional<CriticalCycle>& cycle) {
  const int turn = std::lcm(microbatches_per_turn(shape), cycle ? cycle->microbatches : 1);
  FLOPCAST_CHECK(turn > 0);
  const int least = kWindowPerRank * shape.rank_count();
  return (least + turn - 1) / turn * turn;
}
constexpr int kLongestStart = 256;  // in ranks; a window is 4 ranks long

struct Horizon {
  Ticks makespan = 0;
  double busy = 0.0;
};

Horizon simulate_horizon(const Program& program, const StepTimes& times) {
  const LoweredStep step = lower(program, times);
  const EngineResult result = run(step.graph);
  FLOPCAST_CHECK(!result.deadlocked());
  Horizon horizon;
  horizon.makespan = result.makespan;
  for (TaskId task = 0; task < step.graph.task_count(); ++task) {
    if (is_action(step.labels[task].kind)) horizon.busy += static_cast<double>(result.end[task] - result.start[task]);
  }
  return horizon;
}

}  // namespace

SteadyState steady_state(const std::function<Program(int microbatches)>& generate, const StepTimes& times) {
  SteadyState steady;
  const Program shape = generate(1);
  const int ranks = shape.rank_count();
  const std::optional<CriticalCycle> cycle = critical_cycle(generate, times);
  const int window = window_of(shape, cycle);
  steady.window_microbatches = window;
  for (int start = window; start <= kLongestStart / kWindowPerRank * window; start *= 2) {
    const Horizon first = simulate_horizon(generate(start), times);
    const Horizon second = simulate_horizon(generate(start + window), times);
    const Horizon third = simulate_horizon(generate(start + 2 * window), times);
    steady.start_microbatches = start + window;
    steady.window_ticks = third.makespan - second.makespan;
    steady.periodic = second.makespan - first.makespan == steady.window_ticks;
    // Equal windows may be one phase of a longer pattern; the cycle gives the mean.
    if (cycle) {
      const Ticks lasting = window / cycle->microbatches * cycle->time;
      steady.periodic = steady.periodic && steady.window_ticks == lasting;
      steady.window_ticks = lasting;
    }
    steady.fill_ticks = static_cast<double>(third.makespan) - (start + 2 * window) * steady.period_ticks();
    const double device_ticks = static_cast<double>(steady.window_ticks) * ranks;
    steady.idle_fraction = device_ticks > 0.0 ? 1.0 - (third.busy - second.busy) / device_ticks : 0.0;
    if (steady.periodic) return steady;
  }
  return steady;
}

}  // namespace flopcast
