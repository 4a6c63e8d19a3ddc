#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A message in transit. On asynchronous devices its bytes are valid from `ready` on.
struct Parcel {
  Buffer buffer;
  std::shared_ptr<Moment> ready = nullptr;
};

/// A member's contribution to a collective; its input may be read from `ready` on.
struct Offer {
  Collective collective;
  std::shared_ptr<Moment> ready = nullptr;
};

/// Where a group's members meet, for one collective after another.
class Rendezvous;

/// State shared by the ranks of a process: mailboxes, meeting points, current activities, and whether the run is lost.
/// One mutex guards everything but the payloads, which are copied outside of it.
class ThreadHub {
 public:
  ThreadHub(int ranks, std::chrono::milliseconds patience, const std::atomic<int>* interruption = nullptr);
  ThreadHub(const ThreadHub&) = delete;
  ThreadHub& operator=(const ThreadHub&) = delete;
  ~ThreadHub();

  int ranks() const { return static_cast<int>(mailboxes_.size()); }
  void put(int from, int to, const MessageKey& key, Parcel parcel);
  Parcel take(int from, int to, const MessageKey& key);

  Rendezvous& rendezvous(int group);
  /// Publishes this member's buffers and waits until all members have done so; then every member may read all of them.
  std::vector<Offer> meet(Rendezvous& point, const Group& group, int rank, const Offer& offer);

  /// Throws Aborted if the run has ended.
  void note(int rank, const Activity& activity);
  std::string activity_of(int rank) const;
  /// Ends the run with this message, unless it has already ended; all waiting ranks throw.
  void abort(const std::string& message);
  /// Empty while the run succeeds.
  std::string failure() const;
  void throw_if_aborted() const;

 private:
  using Mailbox = std::map<std::pair<int, MessageKey>, std::deque<Parcel>>;  // by sender and key

  template <class Ready>
  void wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, int rank,
                  const std::string& awaited, Ready ready);
  void gather(Rendezvous& point, const Group& group, int rank);
  void abort_locked(const std::string& message);
  void throw_if_lost_locked(int rank);
  std::string missing_members(const Group& group, const Rendezvous& point) const;

  mutable std::mutex mutex_;
  std::chrono::milliseconds patience_;
  const std::atomic<int>* interruption_;
  std::vector<Mailbox> mailboxes_;
  std::deque<std::condition_variable> mail_arrived_;
  std::vector<Activity> activities_;
  std::map<int, std::unique_ptr<Rendezvous>> rendezvous_;
  bool aborted_ = false;
  std::string failure_;
};

/// A rank that is a thread of this process. Messages are copies between the ranks' memory, made by the receiver once
/// the sender's computation has reached the send. Collectives are copies and reductions from every member's memory, in
/// the order of the members. Started ones run in a second thread of the rank, in order.
///
/// With the queues of a virtual device, which shares a GPU with those of the other ranks, threads meet only to exchange
/// moments, and do not wait for the GPU. The speed of links between devices is not modelled.
class ThreadTransport : public RankTransport {
 public:
  ThreadTransport(ThreadHub& hub, int rank, Queues& queues = host_queues()) : hub_(hub), rank_(rank), queues_(queues) {}
  ThreadTransport(const ThreadTransport&) = delete;
  ThreadTransport& operator=(const ThreadTransport&) = delete;
  /// Finishes all operations begun.
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
  void reduce(Queue queue, const std::vector<Offer>& members, const Group& group);
  void collect(Queue queue, const std::vector<Offer>& members, const Group& group);

  ThreadHub& hub_;
  int rank_ = 0;
  Queues& queues_;
  KeptBuffers kept_;
  int groups_ = 0;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Started>> waiting_;
  std::shared_ptr<Started> under_way_;
  bool closing_ = false;
  SentTraffic traffic_;
  std::thread worker_;  // exists from the first start() on
};

struct ThreadOptions {
  /// How long a rank waits for another before it gives up the run.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  /// Number of a signal that should end the run, 0 while there is none; null: never. Lock-free, so that a signal
  /// handler may set it.
  const std::atomic<int>* interruption = nullptr;
  /// Called with the failure if a rank still computes that long after the run was lost. A thread cannot be ended from
  /// outside, so this must end the process; if empty, the rank is waited for.
  std::function<void(const std::string& failure)> abandon = {};
};

/// Runs `body` once for each rank, each in a thread of this process that by convention uses only its own memory:
/// messages and collectives copy. Returns once all have ended. If one throws, or waits longer than its patience, all
/// others are stopped at their next action or communication, and EnvironmentError names that rank and its action.
void run_threads(int ranks, const ThreadOptions& options, const std::function<void(RankTransport&)>& body);

/// Makes a rank's end of the network between threads; called in the rank's own thread.
using MakeTransport = std::function<std::unique_ptr<RankTransport>(ThreadHub& hub, int rank)>;
/// The same with other transports that meet at a hub.
void run_threads(int ranks, const ThreadOptions& options, const MakeTransport& make_transport,
                 const std::function<void(RankTransport&)>& body);

}  // namespace flopcast::realrun
