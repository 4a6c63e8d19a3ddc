#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sim/schedule/order_times.hpp"
#include "sim/schedule/squeeze.hpp"

namespace flopcast {

/// The best orders that a search has found, a few of them; of those that take equally long, the first.
class BestOrders {
 public:
  /// `bound`: no order takes less.
  BestOrders(int microbatches, StepTimes times, const OrderGoal& goal, const OrderTimes& bound);

  void consider(Program program);

  bool empty() const { return ranking_.empty(); }
  /// Expects at least one order.
  const OrderTimes& shortest() const { return ranking_.front().first; }
  bool is_shortest_possible() const { return !empty() && !goal_.prefers(bound_, shortest()); }
  /// What another order has to beat to be kept; nothing while there is room.
  std::optional<SqueezeTarget> target() const;
  const OrderGoal& goal() const { return goal_; }
  /// From now on orders that take longer than the best one so far are worse than any other, whatever their span.
  void bound_makespan();
  /// Best first; leaves nothing behind.
  std::vector<Program> take();

 private:
  int microbatches_;
  StepTimes times_;
  OrderGoal goal_;
  OrderTimes bound_;
  std::vector<std::pair<OrderTimes, Program>> ranking_;
};

}  // namespace flopcast
