#pragma once

#include <cstdint>

#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// The machine's steady clock starts again after so many nanoseconds, 46 days: a longer time in picoseconds would leave
/// 64 bits. Of a run during which it does, the times are wrong.
inline constexpr std::int64_t kHostClockPeriodNs = 4'000'000'000'000'000;

/// The machine's steady clock in picoseconds, the same for all threads and processes of a machine.
Ticks host_clock();

}  // namespace flopcast::realrun
