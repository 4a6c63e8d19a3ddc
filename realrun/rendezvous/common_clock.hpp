#pragma once

#include "realrun/rendezvous/rank_register.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// What to add to this process's host_clock() to have that of rank 0: nothing on one machine; over a TCP store measured
/// as clock_offset() says; with a store of files by the machines' system clocks, and as good as these are set. Called
/// by all ranks. Throws EnvironmentError when rank 0 does not come within `patience`.
Ticks common_clock_offset(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

}  // namespace flopcast::realrun
