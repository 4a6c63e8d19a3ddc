#pragma once

namespace flopcast::realrun {

enum class OptimizerKind { kSgd, kAdam };

/// sgd   v = momentum·v + g; w -= rate·v
/// adam  m = b1·m + (1-b1)·g; v = b2·v + (1-b2)·g²; w -= rate · m/(1-b1^t) / (sqrt(v/(1-b2^t)) + epsilon)
///       (Kingma & Ba 1412.6980, algorithm 1)
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kAdam;
  float rate = 1e-3F;
  float momentum = 0.9F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;

  /// Floats of state for each weight.
  int states() const { return kind == OptimizerKind::kSgd ? 1 : 2; }
};

}  // namespace flopcast::realrun
