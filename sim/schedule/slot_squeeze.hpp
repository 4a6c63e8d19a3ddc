#pragma once

#include "sim/schedule/building_block.hpp"
#include "sim/schedule/squeeze.hpp"

namespace flopcast {

/// The block, repeated `microbatches` times, every action of it moved to the first free slot in which its input is
/// there, in the order of the slots they had; a forward no further than memory stays within the limit (without one,
/// within what the block itself needs). What Qi 2024, arXiv 2405.15362, section 2 describes as squeezing a repeated
/// block.
///
/// `empty` has the stage map and no actions. Blind to real times, where squeeze() in simulated time is greedy: neither
/// is always the better one. Nothing when the block needs more memory than the limit.
std::optional<Plan> squeeze_slots(const Program& empty, int microbatches, const BuildingBlock& block,
                                  const ActivationRule& rule);

}  // namespace flopcast
