#include "sim/schedule/shorten.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "sim/schedule/order_bound.hpp"
#include "sim/schedule/order_graph.hpp"

namespace flopcast {

namespace {

constexpr Ticks kAnyTime = std::numeric_limits<Ticks>::max() / 8;
constexpr std::size_t kTabu = 12;       // exchanges that may not be undone
constexpr std::size_t kPatience = 400;  // steps without a better order, after which another start is tried
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

  // Whether the first or the `second` half of the goal can get no better.
  bool reached(bool second) const {
    const bool span = second != goal_.span_first;
    return span ? best_.span <= bound_.span : best_.makespan <= bound_.makespan;
  }
  bool done() const { return !goal_.prefers(bound_, best_); }

  // Towards a shorter first half of the goal, or with `second` a shorter second half while the first stays.
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

  // The exchange that looks best, unless it undoes one of the last and leads to nothing new.
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
