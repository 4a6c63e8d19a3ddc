#pragma once

#include <chrono>

#include "realrun/rendezvous/store.hpp"

namespace flopcast::realrun {

inline constexpr const char* kActivityKey = "activity/";  ///< and the rank: what it is at
inline constexpr const char* kDoneKey = "done/";          ///< and the rank, once it has ended well
inline constexpr const char* kEndedKey = "ended/";        ///< and the rank, once it knows of the failure
inline constexpr const char* kRankKey = "rank/";          ///< and the rank: which process it is

/// A process's place in the run.
struct ProcessPlace {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  ///< on its machine: the GPU it takes
};

/// Enters the rank and waits until all ranks are there. Throws EnvironmentError when another process says it has that
/// rank, counts other ranks, or when some do not come: then it names them.
void gather_ranks(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience);

}  // namespace flopcast::realrun
