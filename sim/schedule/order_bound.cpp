#include "sim/schedule/order_bound.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace flopcast {

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
