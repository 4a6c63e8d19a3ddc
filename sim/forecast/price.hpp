#pragma once

#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// Fills in stage_layers, or checks what the job lists, and says in the assumptions what was chosen. Layer profiles are
/// balanced by their times unless the job says uniform. For a transformer "balanced" prices and simulates the uniform
/// split beside balanced ones and takes the fastest of those that fit the memory, or of all where none fits.
/// Throws ConfigError for more stages than layers and for lists of another length or sum.
void spread_layers(PreparedStep& step);

/// Costs and times of a step whose layers are spread; where the schedule's order depends on the times, the program too.
void price(PreparedStep& step);

}  // namespace flopcast
