#pragma once

#include "realrun/compute/stage_compute.hpp"
#include "realrun/interface.hpp"

namespace flopcast::realrun {

/// The weights, gradients and optimizer state of one rank's stages, as the executor drives them. A version of a stage's
/// weights is the number of updates before it since begin_step().
class TrainingState : public Interface {
 public:
  /// The newest weights become version 0.
  virtual void begin_step() = 0;
  /// For one pass of a microbatch that is computed with weights of `version`. `completes`: no later pass adds to the
  /// gradients of this update. Valid until the next call.
  virtual UnitStore& open(int stage, int version, bool completes) = 0;
  /// Applies the gradients added since the last update of the stage and clears them; makes a new version. Versions
  /// below `oldest_needed` are not asked for again.
  virtual void update(int stage, int oldest_needed) = 0;
  /// Ends a step with a flush: the one update of all stages, in place.
  virtual void finish_step() = 0;
};

}  // namespace flopcast::realrun
