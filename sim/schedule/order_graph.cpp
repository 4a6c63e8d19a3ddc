#include "sim/schedule/order_graph.hpp"

#include <algorithm>
#include <limits>

namespace flopcast {

namespace {

constexpr Ticks kNothing = std::numeric_limits<Ticks>::min() / 4;
constexpr std::size_t kKinds = 3;  // F, I or B, W

}  // namespace

OrderGraph::OrderGraph(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule)
    : microbatches_(static_cast<std::size_t>(microbatches)),
      stages_(program.stage_count()),
      rule_(rule),
      nodes_(program.rank_of_stage.size() * microbatches_ * kKinds),
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
  return static_cast<std::int32_t>((stage * microbatches_ + microbatch) * kKinds + slot);
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
  const auto stages = static_cast<std::size_t>(stages_);
  for (std::size_t microbatch = 0; microbatch < microbatches_; ++microbatch) {
    for (std::size_t stage = 0; stage + 1 < stages; ++stage) {
      const bool crosses = program.rank_of_stage[stage] != program.rank_of_stage[stage + 1];
      link(number_of(stage, microbatch, ActionKind::kForward), number_of(stage + 1, microbatch, ActionKind::kForward),
           crosses ? times.boundaries[stage].forward : 0);
      link(number_of(stage + 1, microbatch, ActionKind::kBackward), number_of(stage, microbatch, ActionKind::kBackward),
           crosses ? times.boundaries[stage].backward : 0);
    }
    link(number_of(stages - 1, microbatch, ActionKind::kForward),
         number_of(stages - 1, microbatch, ActionKind::kBackward), 0);
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
  std::vector<std::size_t> list;
  for (std::size_t rank = order_.size(); rank-- > 0;) list.push_back(rank);
  std::size_t total = 0;
  for (const auto& actions : order_) total += actions.size();
  while (!list.empty()) {
    const std::size_t rank = list.back();
    list.pop_back();
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
      const bool waited_for = receiver != rank && next[receiver] < order_[receiver].size() &&
                              order_[receiver][next[receiver]] == current.after;
      if (waited_for) list.push_back(receiver);
    }
  }
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

// Equal actions of other microbatches are the same work: exchanging them changes nothing but their numbers.
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

}  // namespace flopcast
