#include "sim/schedule/assumed_times.hpp"

#include <algorithm>
#include <utility>

namespace flopcast {

namespace {

constexpr Ticks kEqualTime = 1200;  // any; divisible by four for SqueezePolicy::patience

StepTimes equal_times(const Program& program, Ticks pass) {
  StepTimes times;
  times.stages.assign(program.rank_of_stage.size(), StageTimes{pass, 2 * pass, pass, pass, std::nullopt});
  times.boundaries.resize(program.rank_of_stage.size() - 1);
  return times;
}

Ticks mean_pass(const StepTimes& times) {
  Ticks sum = 0;
  for (const StageTimes& stage : times.stages) sum += stage.forward / 3 + stage.backward / 3;
  return sum / static_cast<Ticks>(times.stages.size());
}

bool same_times(const StepTimes& a, const StepTimes& b) {
  const auto of_stage = [](const StageTimes& x, const StageTimes& y) {
    return x.forward == y.forward && x.backward == y.backward && x.input_gradient == y.input_gradient &&
           x.weight_gradient == y.weight_gradient;
  };
  const auto of_boundary = [](const BoundaryTimes& x, const BoundaryTimes& y) {
    return x.forward == y.forward && x.backward == y.backward;
  };
  return std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(), of_stage) &&
         std::equal(a.boundaries.begin(), a.boundaries.end(), b.boundaries.begin(), b.boundaries.end(), of_boundary);
}

}  // namespace

std::vector<StepTimes> assumed_times(const Program& program, const std::optional<StepTimes>& given) {
  if (!given) return {equal_times(program, kEqualTime)};
  std::vector<StepTimes> assumed = {*given, *given};
  assumed[1].boundaries.assign(given->boundaries.size(), BoundaryTimes{});
  assumed.push_back(equal_times(program, mean_pass(*given)));
  assumed.push_back(assumed.back());
  assumed.back().boundaries = given->boundaries;
  std::vector<StepTimes> different;
  for (StepTimes& times : assumed) {
    const bool known = std::any_of(different.begin(), different.end(),
                                   [&times](const StepTimes& one) { return same_times(one, times); });
    if (!known) different.push_back(std::move(times));
  }
  return different;
}

}  // namespace flopcast
