#pragma once

#include <vector>

#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// One question for the time: when it was asked and answered by the own clock, and what the other clock said.
struct ClockReading {
  Ticks asked = 0;
  Ticks answered = 0;
  Ticks other = 0;
};

/// What to add to the other clock to have the own: the other one was read half-way between question and answer, most
/// nearly so in the quickest exchange (Cristian, Distributed Computing 3, 1989, §3). Wrong by half of that exchange at
/// most: some microseconds over InfiniBand, tens over Ethernet. Left out: clocks that run at different rates, apart
/// from measuring anew every step.
Ticks clock_offset(const std::vector<ClockReading>& readings);

}  // namespace flopcast::realrun
