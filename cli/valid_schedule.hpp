#pragma once

#include "sim/program/program.hpp"

namespace flopcast {

/// Throws ConfigError with the step x rank grid when the schedule cannot be executed.
void require_valid(const Program& program);

}  // namespace flopcast
