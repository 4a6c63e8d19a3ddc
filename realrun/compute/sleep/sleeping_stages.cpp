#include "realrun/compute/sleep/sleeping_stages.hpp"

#include <utility>

namespace flopcast::realrun {

SleepingStages::SleepingStages(const StageCompute& sizes, std::vector<StageTimes> times, std::function<bool(int)> first,
                               std::function<bool(int)> last, std::function<void()> poke)
    : sizes_(sizes),
      times_(std::move(times)),
      first_(std::move(first)),
      last_(std::move(last)),
      pace_(std::move(poke)),
      unit_counts_(times_.size()) {}

// Weights are never read: they stay the zeros they are allocated as.
void SleepingStages::initialise(int /*stage*/, int /*unit*/, const Buffer& /*weights*/) {}

void SleepingStages::begin_step(int /*step*/) {}

int SleepingStages::unit_count(int stage) {
  int& count = unit_counts_.at(static_cast<std::size_t>(stage));
  if (count == 0) count = static_cast<int>(sizes_.layout(stage).units.size());
  return count;
}

// The time is spread evenly over the units, so that reductions start during a backward pass as they would.
void SleepingStages::pass(int stage, const Work& work, UnitStore& store) {
  const int units = unit_count(stage);
  pace_.begin();
  Ticks done = 0;
  for (int index = 0; index < units; ++index) {
    const int unit = work.order == Order::kForward ? index : units - 1 - index;
    pace_.pause();
    if (work.reads_weights) store.weights(unit);
    pace_.resume();
    const Ticks until_here = work.duration / units * (index + 1);
    pace_.work((index + 1 == units ? work.duration : until_here) - done);
    done = until_here;
    if (!work.adds_gradients) continue;
    pace_.pause();
    store.gradients(unit);
    store.gradients_added(unit);
    pace_.resume();
  }
  pace_.end();
}

Buffer SleepingStages::forward(int stage, int /*microbatch*/, const Buffer& /*input*/, UnitStore& store) {
  Buffer result = last_(stage) ? Buffer() : allocate_host(boundary_bytes(stage));
  pass(stage, {.duration = times_of(stage).forward}, store);
  return result;
}

Buffer SleepingStages::input_gradient(int stage, int /*microbatch*/, const Buffer& /*output_gradient*/,
                                      UnitStore& store) {
  Buffer result = first_(stage) ? Buffer() : allocate_host(boundary_bytes(stage - 1));
  pass(stage, {.duration = times_of(stage).input_gradient, .order = Order::kBackward}, store);
  return result;
}

void SleepingStages::weight_gradient(int stage, int /*microbatch*/, UnitStore& store) {
  pass(stage,
       {.duration = times_of(stage).weight_gradient,
        .order = Order::kBackward,
        .reads_weights = false,
        .adds_gradients = true},
       store);
}

Buffer SleepingStages::backward(int stage, int /*microbatch*/, const Buffer& /*output_gradient*/, UnitStore& store) {
  Buffer result = first_(stage) ? Buffer() : allocate_host(boundary_bytes(stage - 1));
  pass(stage, {.duration = times_of(stage).backward, .order = Order::kBackward, .adds_gradients = true}, store);
  return result;
}

std::optional<double> SleepingStages::loss(int stage, int /*microbatch*/) const {
  if (!last_(stage)) return std::nullopt;
  return 0.0;
}

}  // namespace flopcast::realrun
