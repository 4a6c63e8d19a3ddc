#pragma once

#include "realrun/compute/stage_compute.hpp"
#include "realrun/interface.hpp"

namespace flopcast::realrun {

/// Where a pass stands among those of its stage.
struct PassPlace {
  int version = 0;         ///< of the weights it is computed with
  bool completes = false;  ///< no later pass adds to the gradients of this update
  /// The rank runs the next pass of the stage in the same direction with no other stage in between, in a program where
  /// that holds for all passes (StageMap::passes_in_a_row): weights gathered for this pass, and gradients not yet
  /// reduced, serve the next one too.
  bool row_goes_on = false;
};

/// The weights, gradients and optimizer state of one rank's stages, as the executor drives them. A version of a stage's
/// weights is the number of updates before it since begin_step().
class TrainingState : public Interface {
 public:
  /// The newest weights become version 0.
  virtual void begin_step() = 0;
  /// For one pass of a microbatch. Valid until the next call.
  virtual UnitStore& open(int stage, const PassPlace& place) = 0;
  /// Applies the gradients added since the last update of the stage and clears them; makes a new version. Versions
  /// below `oldest_needed` are not asked for again.
  virtual void update(int stage, int oldest_needed) = 0;
  /// Ends a step with a flush: the one update of all stages, in place.
  virtual void finish_step() = 0;
};

}  // namespace flopcast::realrun
