#pragma once

#include "model/cost/stage_costs.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// What the cost model needs to know of a program: which part of the model each stage holds, which rank runs it, and
/// how many microbatches pass through it in a row.
StageMap stage_map_of(const Program& program);

}  // namespace flopcast
