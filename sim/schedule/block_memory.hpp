#pragma once

#include "sim/schedule/activation_rule.hpp"
#include "sim/schedule/building_block.hpp"

namespace flopcast {

/// Repeats the block less often, until it fits into the memory of the rule once the pipeline is full.
void stretch_to_fit(BuildingBlock& block, const ActivationRule& rule);

}  // namespace flopcast
