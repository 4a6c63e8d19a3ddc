#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "realrun/transport/threads/hub.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

struct ThreadOptions {
  /// How long a rank waits for another before the run is given up.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  /// The number of a signal that is to end the run, 0 as long as there is none; null: nobody asks. Lock-free, so that a
  /// signal handler may set it.
  const std::atomic<int>* interruption = nullptr;
  /// Called with the failure when a rank still computes that long after the run was lost. Nobody can end a thread from
  /// outside, so this ends the process; without it the rank is waited for.
  std::function<void(const std::string& failure)> abandon = {};
};

/// Runs `body` once for each rank, each in a thread of this process with a memory of its own by convention: messages
/// and collectives copy. Returns when all have ended. When one throws, or waits longer than it has patience, all others
/// are stopped at their next action or communication and EnvironmentError names that rank and the action it was in.
void run_threads(int ranks, const ThreadOptions& options, const std::function<void(Transport&)>& body);

/// A rank's end of the network between threads; called in the rank's own thread.
using MakeTransport = std::function<std::unique_ptr<Transport>(ThreadHub& hub, int rank)>;
/// The same over other transports that meet at a hub.
void run_threads(int ranks, const ThreadOptions& options, const MakeTransport& make_transport,
                 const std::function<void(Transport&)>& body);

}  // namespace flopcast::realrun
