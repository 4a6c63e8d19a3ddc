#pragma once

#include <optional>
#include <vector>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// Times under which a search decides what comes next, all different, the real ones first (F = I = W and no latency
/// without any): the order that suits slightly wrong times is at times the better one.
std::vector<StepTimes> assumed_times(const Program& program, const std::optional<StepTimes>& given);

}  // namespace flopcast
