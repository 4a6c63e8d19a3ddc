#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "realrun/transport/threads/hub.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A rank that is a thread of this process. Messages are copies between the ranks' memory, which the receiver makes
/// once the sender's computation has come so far; collectives are copies and reductions from every member's memory, in
/// the order of the members. Started ones run in a second thread of the rank, in their order.
///
/// Over the queues of a virtual device, which share a GPU with those of the other ranks, threads meet only to tell each
/// other of moments, and do not wait for the GPU. What that cannot show: the speed of any link between devices.
class ThreadTransport : public RankTransport {
 public:
  ThreadTransport(ThreadHub& hub, int rank, Queues& queues = host_queues()) : hub_(hub), rank_(rank), queues_(queues) {}
  ThreadTransport(const ThreadTransport&) = delete;
  ThreadTransport& operator=(const ThreadTransport&) = delete;
  /// What is begun is finished.
  ~ThreadTransport() override;

  int rank() const override { return rank_; }
  int rank_count() const override { return hub_.ranks(); }
  Group form_group(Axis axis, const std::vector<int>& members) override {
    return group_of(groups_++, axis, members, rank_);
  }
  void send(int to, const MessageKey& key, const Buffer& buffer) override;
  Request receive(int from, const MessageKey& key, const Buffer& into) override;
  void run(const Group& group, const Collective& collective) override;
  Request start(const Group& group, const Collective& collective) override;
  void wait(const Request& request) override;
  void note(const Activity& activity) override { hub_.note(rank_, activity); }
  SentTraffic traffic() const override;

 private:
  struct Receive;
  struct Started;

  Offer offer_of(const Collective& collective) { return {collective, queues_.record(Queue::kCompute)}; }
  bool has_started(const Group& group) const;
  void work();
  void await(const Started& started);
  void execute(Started& started);
  std::shared_ptr<Moment> execute(Queue queue, const Group& group, const Offer& offer);
  std::size_t first_phase(Queue queue, const std::vector<Offer>& members, const Group& group,
                          const Collective& collective);
  std::size_t take_parts(Queue queue, const std::vector<Offer>& members, std::size_t index,
                         const Collective& collective);
  std::size_t collect_parts(Queue queue, const std::vector<Offer>& members, const Group& group,
                            const Collective& collective);

  ThreadHub& hub_;
  int rank_ = 0;
  Queues& queues_;
  KeptBuffers kept_;
  int groups_ = 0;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Started>> waiting_;
  std::shared_ptr<Started> under_way_;
  bool closing_ = false;
  SentTraffic traffic_;
  std::thread worker_;  // from the first start() on
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
