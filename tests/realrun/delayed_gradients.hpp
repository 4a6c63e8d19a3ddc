#pragma once

#include <map>
#include <string>
#include <vector>

#include "realrun/training/training_plan.hpp"

namespace flopcast::realrun {

/// Expected result of a run without a flush.
struct DelayedReference {
  double mean_loss = 0;
  std::map<std::string, std::vector<float>> weights;  ///< whole, by name
};

/// A serial reference without pipeline and executor: it keeps every version of each stage's weights, computes each
/// microbatch with the versions that the papers define, and applies the gradients in order, with momentum. PipeDream
/// (Harlap et al. 1806.03377 §3.3): w[k+1] = w[k] - rate · gradient of microbatch k at version max(0, k - (p - 1 - s))
/// of each stage s of p; with vertical sync max(0, k - (p - 1)). PipeDream-2BW (Narayanan et al. 2006.09503 §3.1):
/// batch t of a microbatches at version max(0, t - 1) of all stages. PipeMare (Yang et al. 1910.05124 §2), an update
/// after every a microbatches: forward at version max(0, k - 2 (p - 1 - s)) / a, rounded down, and backward, through
/// the tensors kept by that forward pass, at version k / a.
DelayedReference train_with_delays(const TrainingPlan& plan);
/// The same with every gradient computed from the newest weights.
DelayedReference train_without_delays(const TrainingPlan& plan);

}  // namespace flopcast::realrun
