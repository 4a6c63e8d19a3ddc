#include "sim/search/order_times.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace flopcast {

namespace {

class OrderClock {
 public:
  OrderClock(const Program& program, int microbatches, const StepTimes& times)
      : program_(program),
        times_(times),
        arrivals_(program, microbatches, times),
        next_(program.ranks.size(), 0),
        free_at_(program.ranks.size(), 0),
        first_start_(program.ranks.size(), Arrivals::kNotYet) {}

  OrderTimes run() {
    replay(next_.size(), [this](std::size_t rank, const auto& wake) {
      const std::vector<Action>& actions = program_.ranks[rank];
      while (next_[rank] < actions.size() && execute(actions[next_[rank]], rank, wake)) ++next_[rank];
    });
    OrderTimes result;
    for (std::size_t rank = 0; rank < free_at_.size(); ++rank) {
      result.makespan = std::max(result.makespan, free_at_[rank]);
      result.span = std::max(result.span, free_at_[rank] - std::max<Ticks>(0, first_start_[rank]));
    }
    return result;
  }

 private:
  template <class Wake>
  bool execute(const Action& action, std::size_t rank, const Wake& wake) {
    const Ticks ready = arrivals_.at(action);
    if (ready == Arrivals::kNotYet) return false;
    const Ticks start = std::max(ready, free_at_[rank]);
    if (first_start_[rank] == Arrivals::kNotYet) first_start_[rank] = start;
    free_at_[rank] = start + times_.stages[action.stage].of(action.kind);
    arrivals_.hand_on(action, free_at_[rank], [&wake](std::size_t receiver, Ticks /*at*/) { wake(receiver); });
    return true;
  }

  const Program& program_;
  const StepTimes& times_;
  Arrivals arrivals_;
  std::vector<std::size_t> next_;
  std::vector<Ticks> free_at_;
  std::vector<Ticks> first_start_;
};

}  // namespace

Arrivals::Arrivals(const Program& stages, int microbatches, const StepTimes& times)
    : needs_(stages),
      times_(times),
      inputs_(ByStage<std::size_t>(stages.rank_of_stage.size(), static_cast<std::size_t>(microbatches)), kNotYet) {
  for (int microbatch = 0; microbatch < microbatches; ++microbatch)
    inputs_[forward_action(StageIndex(), MicrobatchIndex(microbatch))] = 0;
}

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
  ByRank<RankBound> ranks(program.ranks.size());
  const auto rank_of = [&](std::size_t stage) -> RankBound& { return ranks[program.rank_of_stage[stage]]; };
  const Needs needs(program);
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
    input_at += needs.result_latency(times, ActionKind::kForward, stage);
    after += needs.input_latency(times, ActionKind::kBackward, stage);
  }
  Ticks gradient_at = input_at;
  for (std::size_t stage = stages; stage-- > 0;) {
    RankBound& rank = rank_of(stage);
    rank.first_gradient = std::min(rank.first_gradient, gradient_at);
    gradient_at += split ? times.stages[stage].input_gradient : times.stages[stage].backward;
    gradient_at += needs.result_latency(times, ActionKind::kInputGradient, stage);
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
