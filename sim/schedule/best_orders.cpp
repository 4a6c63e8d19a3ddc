#include "sim/schedule/best_orders.hpp"

#include <cstddef>

namespace flopcast {

namespace {

constexpr std::size_t kMost = 6;

}  // namespace

BestOrders::BestOrders(int microbatches, StepTimes times, const OrderGoal& goal, const OrderTimes& bound)
    : microbatches_(microbatches), times_(std::move(times)), goal_(goal), bound_(bound) {}

void BestOrders::consider(Program program) {
  const OrderTimes times = time_order(program, microbatches_, times_);
  auto place = ranking_.begin();
  while (place != ranking_.end() && goal_.prefers(place->first, times)) ++place;
  if (place != ranking_.end() && !goal_.prefers(times, place->first)) return;
  ranking_.emplace(place, times, std::move(program));
  if (ranking_.size() > kMost) ranking_.pop_back();
}

std::optional<SqueezeTarget> BestOrders::target() const {
  if (ranking_.size() < kMost) return std::nullopt;
  return SqueezeTarget{goal_, ranking_.back().first};
}

void BestOrders::bound_makespan() {
  goal_.most_makespan = shortest().makespan;
  ranking_.resize(1);
}

std::vector<Program> BestOrders::take() {
  std::vector<Program> programs;
  for (auto& [times, program] : ranking_) programs.push_back(std::move(program));
  ranking_.clear();
  return programs;
}

}  // namespace flopcast
