#include "sim/search/order_times.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
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

namespace {

constexpr Ticks kLate = std::numeric_limits<Ticks>::max() / 4;

struct RankBound {
  Ticks first_input = kLate;
  Ticks first_gradient = kLate;
  Ticks forwards = 0;
  Ticks longest_forward = 0;
  Ticks busy = 0;
  Ticks after = kLate;  // from its last action to the end of the step
};

}  // namespace

OrderTimes order_bound(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule,
                       bool split) {
  const std::size_t stages = program.rank_of_stage.size();
  std::vector<RankBound> ranks(program.ranks.size());
  const auto rank_of = [&](std::size_t stage) -> RankBound& {
    return ranks[static_cast<std::size_t>(program.rank_of_stage[stage])];
  };
  const auto crosses = [&](std::size_t stage) {
    return program.rank_of_stage[stage] != program.rank_of_stage[stage + 1];
  };
  Ticks input_at = 0;
  Ticks after = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const StageTimes& stage_times = times.stages[stage];
    RankBound& rank = rank_of(stage);
    rank.first_input = std::min(rank.first_input, input_at);
    rank.after = std::min(rank.after, split ? 0 : after);
    rank.forwards += microbatches * stage_times.forward;
    rank.longest_forward = std::max(rank.longest_forward, stage_times.forward);
    rank.busy += microbatches * (stage_times.forward + (split ? stage_times.input_gradient + stage_times.weight_gradient
                                                              : stage_times.backward));
    input_at += stage_times.forward;
    after += stage_times.backward;
    if (stage + 1 == stages || !crosses(stage)) continue;
    input_at += times.boundaries[stage].forward;
    after += times.boundaries[stage].backward;
  }
  Ticks gradient_at = input_at;
  for (std::size_t stage = stages; stage-- > 0;) {
    RankBound& rank = rank_of(stage);
    rank.first_gradient = std::min(rank.first_gradient, gradient_at);
    gradient_at += split ? times.stages[stage].input_gradient : times.stages[stage].backward;
    if (stage > 0 && crosses(stage - 1)) gradient_at += times.boundaries[stage - 1].backward;
  }
  OrderTimes bound;
  for (const RankBound& rank : ranks) {
    Ticks before_gradients = rank.forwards;
    if (rule.limit) before_gradients = std::min(before_gradients, *rule.limit / 2 * rank.longest_forward);
    const Ticks idle = std::max<Ticks>(0, rank.first_gradient - rank.first_input - before_gradients);
    bound.span = std::max(bound.span, idle + rank.busy);
    bound.makespan = std::max(bound.makespan, rank.first_input + idle + rank.busy + rank.after);
  }
  return bound;
}

}  // namespace flopcast
