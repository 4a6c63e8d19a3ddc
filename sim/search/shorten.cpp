#include "sim/search/block_search.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "sim/search/order_times.hpp"

namespace flopcast {

namespace {

// A program with one chain and without overlapped pairs, where transfers cost latency only, as a graph whose longest
// paths can be followed. Adjacent actions in a rank's order can be exchanged, and the resulting lateness of the ranks
// can be estimated beforehand.
class OrderGraph {
 public:
  // Numbers of actions, indexed by rank.
  using Order = std::vector<std::vector<std::int32_t>>;

  // Adjacent actions in a rank's order, `place` and `place + 1`.
  struct Exchange {
    std::size_t rank = 0;
    std::size_t place = 0;
  };

  // Times the program, which must pass find_fault and satisfy the rule.
  OrderGraph(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule);

  // Times every action; false if the order deadlocks.
  bool time_actions();
  // End times of the order that was timed last.
  OrderTimes times() const;

  // Lateness of the worst rank (negative if early), where every rank is due `makespan` after the start and `span` after
  // its own first start. Also measures, for every action, the time that its successors take.
  Ticks measure_lateness(Ticks makespan, Ticks span);

  // Lists exchanges that are valid and could reduce the lateness: adjacent actions without idle time in between, on a
  // path that makes a rank as late as the latest.
  void list_exchanges(std::vector<Exchange>& exchanges) const;
  // A lower bound of the lateness after the exchange: that of the paths through the two actions.
  Ticks estimate(const Exchange& exchange) const;
  void apply(const Exchange& exchange);

  // Numbers of the two actions, for the list of recent exchanges.
  std::int32_t first_of(const Exchange& exchange) const { return order_[exchange.rank][exchange.place]; }
  std::int32_t second_of(const Exchange& exchange) const { return order_[exchange.rank][exchange.place + 1]; }

  const Order& order() const { return order_; }
  // Another order of the same actions.
  Order order_of(const Program& program) const;
  void set_order(const Order& order) { order_ = order; }
  // Writes the order into a program with the same stages.
  void write(const Order& order, Program& program) const;

 private:
  struct Node {
    Ticks duration = 0;
    Ticks head = 0;  // start
    Ticks tail = 0;  // from the end to the worst end after it, minus that rank's due time
    Ticks latency_before = 0;
    Ticks latency_after = 0;
    std::int32_t before = -1;  // action whose result it needs
    std::int32_t after = -1;   // action that needs its result
    std::int32_t rank = 0;
    std::int8_t change = 0;  // in halves of an activation
    bool timed = false;
    Action action;
  };

  std::int32_t number_of(std::size_t stage, std::size_t microbatch, ActionKind kind) const;
  void add(const Action& action, std::size_t rank, const StepTimes& times);
  void connect(const Program& program, const StepTimes& times);
  Ticks arrival(const Node& of) const;
  Ticks due_path(const Node& of) const;
  bool may_exchange(std::int32_t first, std::int32_t second) const;
  const Node& node(std::int32_t number) const { return nodes_[static_cast<std::size_t>(number)]; }
  Node& node(std::int32_t number) { return nodes_[static_cast<std::size_t>(number)]; }

  std::size_t microbatches_;
  int stages_;
  ActivationRule rule_;
  std::vector<Node> nodes_;
  Order order_;
  std::vector<std::int32_t> topological_;  // in the order in which they were timed
  std::vector<Ticks> due_;
  Ticks lateness_ = 0;
};

constexpr Ticks kNothing = std::numeric_limits<Ticks>::min() / 4;
constexpr std::size_t kNodeKinds = 3;  // F, I or B, W

OrderGraph::OrderGraph(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule)
    : microbatches_(static_cast<std::size_t>(microbatches)),
      stages_(program.stage_count()),
      rule_(rule),
      nodes_(program.rank_of_stage.size() * microbatches_ * kNodeKinds),
      order_(program.ranks.size()),
      due_(program.ranks.size(), 0) {
  for (std::size_t rank = 0; rank < order_.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) add(action, rank, times);
  }
  topological_.reserve(program.action_count());
  connect(program, times);
  time_actions();
}

std::int32_t OrderGraph::number_of(std::size_t stage, std::size_t microbatch, ActionKind kind) const {
  const std::size_t slot = kind == ActionKind::kForward ? 0 : kind == ActionKind::kWeightGradient ? 2 : 1;
  return static_cast<std::int32_t>((stage * microbatches_ + microbatch) * kNodeKinds + slot);
}

void OrderGraph::add(const Action& action, std::size_t rank, const StepTimes& times) {
  const std::int32_t number = number_of(action.stage, action.microbatch, action.kind);
  Node& added = node(number);
  added.action = action;
  added.duration = times.stages[action.stage].of(action.kind);
  added.rank = static_cast<std::int32_t>(rank);
  added.change = static_cast<std::int8_t>(rule_.change(action.kind));
  order_[rank].push_back(number);
}

void OrderGraph::connect(const Program& program, const StepTimes& times) {
  const auto link = [this](std::int32_t from, std::int32_t to, Ticks latency) {
    node(from).after = to;
    node(from).latency_after = latency;
    node(to).before = from;
    node(to).latency_before = latency;
  };
  const Needs needs(program);
  for (std::size_t stage = 0; stage < needs.stage_count(); ++stage) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      // At the last stage the backward waits for the microbatch's own forward.
      const Needs::Neighbour& from = needs.input_of(kind, stage);
      if (!from && kind == ActionKind::kForward) continue;
      const ActionKind source = from ? kind : ActionKind::kForward;
      const Ticks latency = needs.input_latency(times, kind, stage);
      for (std::size_t microbatch = 0; microbatch < microbatches_; ++microbatch) {
        link(number_of(from ? from.stage : stage, microbatch, source), number_of(stage, microbatch, kind), latency);
      }
    }
  }
}

Ticks OrderGraph::arrival(const Node& of) const {
  if (of.before < 0) return 0;
  const Node& before = node(of.before);
  return before.head + before.duration + of.latency_before;
}

bool OrderGraph::time_actions() {
  for (Node& each : nodes_) each.timed = false;
  topological_.clear();
  std::vector<std::size_t> next(order_.size(), 0);
  std::vector<Ticks> free_at(order_.size(), 0);
  std::size_t total = 0;
  for (const auto& actions : order_) total += actions.size();
  replay(order_.size(), [&](std::size_t rank, const auto& wake) {
    while (next[rank] < order_[rank].size()) {
      const std::int32_t number = order_[rank][next[rank]];
      Node& current = node(number);
      if (current.before >= 0 && !node(current.before).timed) break;
      current.head = std::max(free_at[rank], arrival(current));
      current.timed = true;
      free_at[rank] = current.head + current.duration;
      topological_.push_back(number);
      ++next[rank];
      if (current.after < 0) continue;
      const auto receiver = static_cast<std::size_t>(node(current.after).rank);
      const bool waited_for =
          next[receiver] < order_[receiver].size() && order_[receiver][next[receiver]] == current.after;
      if (waited_for) wake(receiver);
    }
  });
  return topological_.size() == total;
}

OrderTimes OrderGraph::times() const {
  OrderTimes result;
  for (const auto& actions : order_) {
    if (actions.empty()) continue;
    const Ticks end = node(actions.back()).head + node(actions.back()).duration;
    result.makespan = std::max(result.makespan, end);
    result.span = std::max(result.span, end - node(actions.front()).head);
  }
  return result;
}

Ticks OrderGraph::due_path(const Node& of) const {
  if (of.after < 0) return kNothing;
  const Node& after = node(of.after);
  return of.latency_after + after.duration + after.tail;
}

Ticks OrderGraph::measure_lateness(Ticks makespan, Ticks span) {
  for (std::size_t rank = 0; rank < order_.size(); ++rank) {
    due_[rank] = order_[rank].empty() ? makespan : std::min(makespan, node(order_[rank].front()).head + span);
  }
  lateness_ = kNothing;
  std::vector<const Node*> follower(order_.size(), nullptr);
  for (std::size_t index = topological_.size(); index-- > 0;) {
    Node& current = node(topological_[index]);
    const auto rank = static_cast<std::size_t>(current.rank);
    const Ticks on_rank = follower[rank] == nullptr ? -due_[rank] : follower[rank]->duration + follower[rank]->tail;
    current.tail = std::max(on_rank, due_path(current));
    follower[rank] = &current;
    lateness_ = std::max(lateness_, current.head + current.duration + current.tail);
  }
  return lateness_;
}

// The same action of another microbatch is the same work: exchanging the two changes only their numbers.
bool OrderGraph::may_exchange(std::int32_t first, std::int32_t second) const {
  const Action& a = node(first).action;
  const Action& b = node(second).action;
  if (a.stage == b.stage && (a.kind == b.kind || a.microbatch == b.microbatch)) return false;
  return node(second).before != first;
}

void OrderGraph::list_exchanges(std::vector<Exchange>& exchanges) const {
  exchanges.clear();
  const auto critical = [this](const Node& of) { return of.head + of.duration + of.tail == lateness_; };
  for (std::size_t rank = 0; rank < order_.size(); ++rank) {
    const std::vector<std::int32_t>& actions = order_[rank];
    int held = 0;
    for (std::size_t place = 0; place + 1 < actions.size(); ++place) {
      const Node& first = node(actions[place]);
      const Node& second = node(actions[place + 1]);
      const bool fits = rule_.allows(held + second.change);
      held += first.change;
      if (!fits || !critical(first) || !critical(second) || second.head != first.head + first.duration) continue;
      if (may_exchange(actions[place], actions[place + 1])) exchanges.push_back({rank, place});
    }
  }
}

Ticks OrderGraph::estimate(const Exchange& exchange) const {
  const std::vector<std::int32_t>& actions = order_[exchange.rank];
  const Node& first = node(actions[exchange.place]);
  const Node& second = node(actions[exchange.place + 1]);
  Ticks free_at = 0;
  if (exchange.place > 0) {
    const Node& previous = node(actions[exchange.place - 1]);
    free_at = previous.head + previous.duration;
  }
  Ticks followed = -due_[exchange.rank];
  if (exchange.place + 2 < actions.size()) {
    const Node& next = node(actions[exchange.place + 2]);
    followed = next.duration + next.tail;
  }
  const Ticks second_end = std::max(free_at, arrival(second)) + second.duration;
  const Ticks first_end = std::max(second_end, arrival(first)) + first.duration;
  const Ticks first_tail = std::max(followed, due_path(first));
  const Ticks second_tail = std::max(first.duration + first_tail, due_path(second));
  return std::max(second_end + second_tail, first_end + first_tail);
}

void OrderGraph::apply(const Exchange& exchange) {
  std::swap(order_[exchange.rank][exchange.place], order_[exchange.rank][exchange.place + 1]);
}

OrderGraph::Order OrderGraph::order_of(const Program& program) const {
  Order order(program.ranks.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) {
      order[rank].push_back(number_of(action.stage, action.microbatch, action.kind));
    }
  }
  return order;
}

void OrderGraph::write(const Order& order, Program& program) const {
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    program.ranks[rank].clear();
    for (const std::int32_t number : order[rank]) program.ranks[rank].push_back(node(number).action);
  }
}

constexpr Ticks kAnyTime = std::numeric_limits<Ticks>::max() / 8;
constexpr std::size_t kTabu = 12;       // exchanges that may not be reversed
constexpr std::size_t kPatience = 400;  // steps without a better order before another start is tried
constexpr std::size_t kMostSteps = 3000;
constexpr std::size_t kFewestSteps = 20;  // fewer would not be worth the time

class TabuSearch {
 public:
  TabuSearch(OrderGraph& graph, const OrderGoal& goal, const OrderTimes& bound, std::size_t steps)
      : graph_(graph), goal_(goal), bound_(bound), left_(steps) {
    keep(graph_.times());
  }

  OrderGraph::Order run(const std::vector<OrderGraph::Order>& starts) {
    for (const OrderGraph::Order& start : starts) descend(start, false);
    for (std::size_t round = 0; left_ > 0 && !done(); ++round) {
      const bool second = round % 2 == 0 || reached(false);
      descend(OrderGraph::Order(best_order_), second && !reached(true));
    }
    return best_order_;
  }

 private:
  using Pair = std::pair<std::int32_t, std::int32_t>;

  // True if the first or, with `second`, the second criterion of the goal cannot improve.
  bool reached(bool second) const {
    const bool span = second != goal_.span_first;
    return span ? best_.span <= bound_.span : best_.makespan <= bound_.makespan;
  }
  bool done() const { return !goal_.prefers(bound_, best_); }

  // Searches for a better first criterion of the goal or, with `second`, a better second one at the same first.
  void descend(const OrderGraph::Order& start, bool second) {
    if (reached(second) || left_ == 0) return;
    --left_;
    graph_.set_order(start);
    if (!graph_.time_actions()) return;
    tabu_.fill({-1, -1});
    const bool aims_at_span = second != goal_.span_first;
    OrderTimes nearest = graph_.times();
    for (std::size_t idle = 0; idle < kPatience && left_ > 0 && !reached(second); ++idle, --left_) {
      const Ticks makespan =
          aims_at_span ? (second ? best_.makespan : goal_.most_makespan.value_or(kAnyTime)) : best_.makespan - 1;
      const Ticks span = aims_at_span ? best_.span - 1 : (second ? best_.span : kAnyTime);
      graph_.measure_lateness(makespan, span);
      if (!step() || !graph_.time_actions()) return;
      const OrderTimes times = graph_.times();
      if (goal_.prefers(times, best_)) keep(times);
      if (!goal_.prefers(times, nearest)) continue;
      nearest = times;
      idle = 0;
    }
  }

  void keep(const OrderTimes& times) {
    best_ = times;
    best_order_ = graph_.order();
  }

  // Applies the exchange that looks best, unless it reverses a recent one and leads to nothing new.
  bool step() {
    graph_.list_exchanges(exchanges_);
    if (exchanges_.empty()) return false;
    Ticks least = kAnyTime;
    std::size_t ties = 0;
    OrderGraph::Exchange chosen;
    for (const OrderGraph::Exchange& exchange : exchanges_) {
      const Ticks lateness = graph_.estimate(exchange);
      if (lateness > least || (lateness > 0 && is_tabu(exchange))) continue;
      ties = lateness < least ? 1 : ties + 1;
      least = lateness;
      if (random() % ties == 0) chosen = exchange;
    }
    if (least == kAnyTime) chosen = exchanges_[random() % exchanges_.size()];
    tabu_[next_tabu_++ % kTabu] = {graph_.second_of(chosen), graph_.first_of(chosen)};
    graph_.apply(chosen);
    return true;
  }

  bool is_tabu(const OrderGraph::Exchange& exchange) const {
    const Pair pair{graph_.first_of(exchange), graph_.second_of(exchange)};
    return std::find(tabu_.begin(), tabu_.end(), pair) != tabu_.end();
  }

  // A linear congruential generator (Knuth's MMIX): the same numbers on every machine.
  std::size_t random() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state_ >> 33U);
  }

  OrderGraph& graph_;
  OrderGoal goal_;
  OrderTimes bound_;
  std::size_t left_;
  OrderTimes best_;
  OrderGraph::Order best_order_;
  std::vector<OrderGraph::Exchange> exchanges_;
  std::array<Pair, kTabu> tabu_ = {};
  std::size_t next_tabu_ = 0;
  std::uint64_t state_ = 1;
};

}  // namespace

Program shorten(const std::vector<Program>& programs, int microbatches, const StepTimes& times,
                const ActivationRule& rule, const OrderGoal& goal, std::size_t most_actions) {
  const std::size_t actions = std::max<std::size_t>(1, programs.front().action_count());
  const std::size_t steps = std::min(kMostSteps, most_actions / actions);
  Program shortened = programs.front();
  if (steps < kFewestSteps) return shortened;
  const std::vector<Action>& actions_of_first = shortened.ranks.front();
  const bool split = std::any_of(actions_of_first.begin(), actions_of_first.end(),
                                 [](const Action& action) { return action.kind == ActionKind::kInputGradient; });
  const OrderTimes bound = order_bound(shortened, microbatches, times, rule, split);
  if (!goal.prefers(bound, time_order(shortened, microbatches, times))) return shortened;
  OrderGraph graph(shortened, microbatches, times, rule);
  std::vector<OrderGraph::Order> starts;
  for (const Program& program : programs) starts.push_back(graph.order_of(program));
  graph.write(TabuSearch(graph, goal, bound, steps).run(starts), shortened);
  return shortened;
}

}  // namespace flopcast
