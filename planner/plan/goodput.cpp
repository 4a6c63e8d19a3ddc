#include "planner/plan/goodput.hpp"

#include <cmath>

namespace flopcast {

namespace {

constexpr double kSecondsPerDay = 86'400.0;

double best_interval(double checkpoint, double mtbf) {
  if (checkpoint >= 2.0 * mtbf) return mtbf;
  const double ratio = checkpoint / (2.0 * mtbf);
  return std::sqrt(2.0 * checkpoint * mtbf) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) - checkpoint;
}

}  // namespace

Goodput goodput_of(const Interruptions& interruptions, int gpus) {
  const double mtbf = interruptions.gpu_mtbf_s / gpus;
  Goodput goodput;
  goodput.failures_per_day = kSecondsPerDay / mtbf;
  goodput.interval_s = best_interval(interruptions.checkpoint_s, mtbf);
  // Without any cost of a checkpoint one is always at hand.
  const double segment = goodput.interval_s + interruptions.checkpoint_s;
  const double per_segment = segment > 0.0 ? mtbf * std::expm1(segment / mtbf) / segment : 1.0;
  const double useful = segment > 0.0 ? goodput.interval_s / segment : 1.0;
  goodput.fraction = useful / (per_segment * std::exp(interruptions.restart_s / mtbf));
  return goodput;
}

}  // namespace flopcast
