#pragma once

#include <string_view>

#include "sim/schedule/catalogue.hpp"

namespace flopcast {

/// The schedules of Qi 2024, arXiv 2405.15362, section 4: the best order found on the V map (block_search.hpp) for the
/// request's times while no rank holds more than `most_in_flight` activations, each of one chunk and held until its
/// weight gradient. `split`: input and weight gradients apart.
Program search_v(std::string_view schedule, const ScheduleRequest& request, bool split, int most_in_flight);

/// What their catalogue entries have in common: all but names, figures and generator.
ScheduleInfo v_search_info();

}  // namespace flopcast
