#pragma once

#include <chrono>
#include <functional>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

struct ThreadOptions {
  /// How long a rank waits for another before the run is given up.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

/// Runs `body` once for each rank, each in a thread of this process with a memory of its own by convention: messages
/// and collectives copy. Returns when all have ended. When one throws, or waits longer than it has patience, all others
/// are stopped at their next communication and EnvironmentError names that rank and the action it was in.
void run_threads(int ranks, const ThreadOptions& options, const std::function<void(Transport&)>& body);

}  // namespace flopcast::realrun
