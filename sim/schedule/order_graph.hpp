#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/schedule/activation_rule.hpp"
#include "sim/schedule/order_times.hpp"

namespace flopcast {

/// A program of one chain and without overlapped pairs, transfers being latency only, as a graph whose longest paths
/// can be followed: neighbours in a rank's order can be exchanged, and how late that makes the ranks is estimated
/// before.
class OrderGraph {
 public:
  /// By rank, numbers of actions.
  using Order = std::vector<std::vector<std::int32_t>>;

  /// Neighbours of a rank's order, `place` and `place + 1`.
  struct Exchange {
    std::size_t rank = 0;
    std::size_t place = 0;
  };

  /// Expects a program that find_fault accepts and that keeps the rule, and times it.
  OrderGraph(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule);

  /// Times every action; false when the order deadlocks.
  bool time_actions();
  /// Of the order that was timed last.
  OrderTimes times() const;

  /// The ranks are to end `makespan` after the start and `span` after their own first start; how much later the worst
  /// of them ends (negative: earlier). Also measures, for every action, how long what follows it takes.
  Ticks measure_lateness(Ticks makespan, Ticks span);

  /// Exchanges that are valid and could make the ranks less late: neighbours without idle time in between, on a path
  /// that makes a rank as late as the latest.
  void list_exchanges(std::vector<Exchange>& exchanges) const;
  /// A lower bound of the lateness after the exchange: that of the paths through the two actions.
  Ticks estimate(const Exchange& exchange) const;
  void apply(const Exchange& exchange);

  /// Numbers of the two actions, for a list of recent exchanges.
  std::int32_t first_of(const Exchange& exchange) const { return order_[exchange.rank][exchange.place]; }
  std::int32_t second_of(const Exchange& exchange) const { return order_[exchange.rank][exchange.place + 1]; }

  const Order& order() const { return order_; }
  /// Of another order of the same actions.
  Order order_of(const Program& program) const;
  void set_order(const Order& order) { order_ = order; }
  /// Into a program with the same stages.
  void write(const Order& order, Program& program) const;

 private:
  struct Node {
    Ticks duration = 0;
    Ticks head = 0;  // start
    Ticks tail = 0;  // from the end to the worst end after it, less that rank's due time
    Ticks latency_before = 0;
    Ticks latency_after = 0;
    std::int32_t before = -1;  // whose result it needs
    std::int32_t after = -1;   // who needs its result
    std::int32_t rank = 0;
    std::int8_t change = 0;  // halves of an activation
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

}  // namespace flopcast
