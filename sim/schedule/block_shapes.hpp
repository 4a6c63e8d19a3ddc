#pragma once

#include <vector>

#include "sim/schedule/building_block.hpp"

namespace flopcast {

/// Every combination of these steps and gaps, for one chunk or for two.
std::vector<BlockShape> all_shapes(int chunks, int largest_step, int largest_gap);

/// What is tried on the V map.
std::vector<BlockShape> v_shapes(int ranks);

}  // namespace flopcast
