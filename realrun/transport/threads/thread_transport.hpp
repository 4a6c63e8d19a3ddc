#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "realrun/transport/threads/hub.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// This member's share of a collective whose buffers all members can read, `members[group.index]` its own. Calls
/// `meet`, which waits for all members, between phases; they have to meet once more before anybody touches its buffers.
/// Returns the bytes this member sends: as many as it reads of the others' memory. With n members and S bytes that is
/// (n-1)/n·S for the reduction of its own part, and as much for the collection of the others' parts.
std::size_t exchange(const std::vector<Collective>& members, const Group& group, const Collective& collective,
                     const std::function<void()>& meet);

/// A rank that is a thread.
class ThreadTransport : public HubTransport {
 public:
  ThreadTransport(ThreadHub& hub, int rank) : HubTransport(hub, rank) {}
  ThreadTransport(const ThreadTransport&) = delete;
  ThreadTransport& operator=(const ThreadTransport&) = delete;
  ThreadTransport(ThreadTransport&&) = delete;
  ThreadTransport& operator=(ThreadTransport&&) = delete;
  ~ThreadTransport() override { close(); }

  void send(int to, const MessageKey& key, const Buffer& buffer) override;
  Request receive(int from, const MessageKey& key, const Buffer& into) override;
  void wait(const Request& request) override;

 private:
  struct Receive;

  Offer offer_of(const Collective& collective) override { return {collective}; }
  void execute(const Group& group, const Offer& offer) override;
  void execute(Started& started) override;
};

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
void run_threads(int ranks, const ThreadOptions& options, const std::function<void(RankTransport&)>& body);

/// A rank's end of the network between threads; called in the rank's own thread.
using MakeTransport = std::function<std::unique_ptr<RankTransport>(ThreadHub& hub, int rank)>;
/// The same over other transports that meet at a hub.
void run_threads(int ranks, const ThreadOptions& options, const MakeTransport& make_transport,
                 const std::function<void(RankTransport&)>& body);

}  // namespace flopcast::realrun
