#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/host/launcher.hpp"
#include "realrun/rendezvous/store.hpp"
#include "sim/program/action.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// What a rank is at, for messages about a stuck or failed run.
struct Activity {
  enum class Kind : std::uint8_t { kSetUp, kAction, kFlush, kDone };
  Kind kind = Kind::kSetUp;
  Action action;
};
/// "2F0", "the end of the step".
std::string to_string(const Activity& activity);

inline constexpr const char* kActivityKey = "activity/";  ///< and the rank: what it is at
inline constexpr const char* kDoneKey = "done/";          ///< and the rank, once it has ended well
inline constexpr const char* kEndedKey = "ended/";        ///< and the rank, once it knows of the failure
inline constexpr const char* kRankKey = "rank/";          ///< and the rank: which process it is

/// Enters the rank and waits until all ranks are there. Throws EnvironmentError when another process says it has that
/// rank, counts other ranks, or when some do not come: then it names them.
void gather_ranks(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

/// What to add to this process's host_clock() to have that of rank 0: nothing on one machine; over a TCP store measured
/// as clock_offset() says; with a store of files by the machines' system clocks, and as good as these are set. Called
/// by all ranks. Throws EnvironmentError when rank 0 does not come within `patience`.
Ticks common_clock_offset(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

/// What the process of rank 0 gives to all processes that mpirun or srun started together, `ranks` of them; nothing
/// where MPI has not started as many, or when built without it. MPI is begun and ended by the call, which all of them
/// make, once.
std::optional<std::string> tell_by_mpi(int rank, int ranks, const std::string& given);

}  // namespace flopcast::realrun
