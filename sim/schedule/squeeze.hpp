#pragma once

#include <optional>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/building_block.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// What a rank may hold, counted in halves of one chunk's activation: a forward takes two. A full backward gives two
/// back, W what I has not.
struct ActivationRule {
  std::optional<int> limit;      ///< absent: no limit
  bool half_freed_at_i = false;  ///< I gives one half back, as 2401.10241 counts; otherwise W gives both
};

struct SqueezePolicy {
  /// Weight gradients keep their place in the block (input gradients may pass them); otherwise they fill idle time and
  /// come before a forward that needs their memory.
  bool weights_in_order = false;
  /// How far an action that is moved forward may delay the one that is due, in quarters of its own duration.
  int patience = 0;
};

/// The order that repeating `block` `microbatches` times gives once it runs as early as it can: in simulated time each
/// rank takes what the block has next; while that has not arrived, it takes the next action that has, provided that
/// memory stays within the rule until the block's order is caught up with. `empty` has the stage map and no actions.
/// Nothing when the block's own order needs more memory than the rule allows.
std::optional<Program> squeeze(const Program& empty, int microbatches, const BuildingBlock& block,
                               const StepTimes& times, const ActivationRule& rule, const SqueezePolicy& policy);

}  // namespace flopcast
