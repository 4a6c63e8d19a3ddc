#pragma once

#include "sim/lower/step_times.hpp"

namespace flopcast::realrun {

/// The machine's steady clock in picoseconds, the same for all threads and processes of a machine.
Ticks host_clock();

}  // namespace flopcast::realrun
