#include "sim/schedule/order_times.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace flopcast {

namespace {

constexpr Ticks kUnknown = -1;

class OrderClock {
 public:
  OrderClock(const Program& program, int microbatches, const StepTimes& times)
      : program_(program),
        times_(times),
        microbatches_(static_cast<std::size_t>(microbatches)),
        forward_ready_(program.rank_of_stage.size() * microbatches_, kUnknown),
        backward_ready_(forward_ready_.size(), kUnknown),
        next_(program.ranks.size(), 0),
        free_at_(program.ranks.size(), 0),
        first_start_(program.ranks.size(), kUnknown),
        listed_(program.ranks.size(), true) {
    std::fill_n(forward_ready_.begin(), microbatches_, Ticks{0});
    for (std::size_t rank = program.ranks.size(); rank-- > 0;) list_.push_back(rank);
  }

  OrderTimes run() {
    while (!list_.empty()) {
      const std::size_t rank = list_.back();
      list_.pop_back();
      listed_[rank] = false;
      while (next_[rank] < program_.ranks[rank].size() && execute(program_.ranks[rank][next_[rank]], rank))
        ++next_[rank];
    }
    OrderTimes result;
    for (std::size_t rank = 0; rank < free_at_.size(); ++rank) {
      result.makespan = std::max(result.makespan, free_at_[rank]);
      result.span = std::max(result.span, free_at_[rank] - std::max<Ticks>(0, first_start_[rank]));
    }
    return result;
  }

 private:
  std::size_t index_of(const Action& action) const { return action.stage * microbatches_ + action.microbatch; }

  bool execute(const Action& action, std::size_t rank) {
    Ticks ready = 0;
    int direction = 0;
    if (action.kind == ActionKind::kForward) {
      ready = forward_ready_[index_of(action)];
      direction = 1;
    } else if (action.kind != ActionKind::kWeightGradient) {
      ready = backward_ready_[index_of(action)];
      direction = -1;
    }
    if (ready == kUnknown) return false;
    const Ticks start = std::max(ready, free_at_[rank]);
    if (first_start_[rank] == kUnknown) first_start_[rank] = start;
    free_at_[rank] = start + times_.stages[action.stage].of(action.kind);
    if (direction != 0) hand_on(action, rank, direction);
    return true;
  }

  void hand_on(const Action& action, std::size_t rank, int direction) {
    const int to = action.stage + direction;
    if (to == program_.stage_count()) backward_ready_[index_of(action)] = free_at_[rank];
    if (to < 0 || to == program_.stage_count()) return;
    Action next = action;
    next.stage = static_cast<std::uint16_t>(to);
    const auto receiver = static_cast<std::size_t>(program_.rank_of_stage[next.stage]);
    const BoundaryTimes& boundary = times_.boundaries[std::min(next.stage, action.stage)];
    const Ticks latency = direction > 0 ? boundary.forward : boundary.backward;
    (direction > 0 ? forward_ready_ : backward_ready_)[index_of(next)] =
        free_at_[rank] + (receiver == rank ? 0 : latency);
    if (receiver == rank || listed_[receiver]) return;
    listed_[receiver] = true;
    list_.push_back(receiver);
  }

  const Program& program_;
  const StepTimes& times_;
  std::size_t microbatches_;
  std::vector<Ticks> forward_ready_;
  std::vector<Ticks> backward_ready_;
  std::vector<std::size_t> next_;
  std::vector<Ticks> free_at_;
  std::vector<Ticks> first_start_;
  std::vector<bool> listed_;
  std::vector<std::size_t> list_;
};

}  // namespace

OrderTimes time_order(const Program& program, int microbatches, const StepTimes& times) {
  return OrderClock(program, microbatches, times).run();
}

}  // namespace flopcast
