#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A message on its way. On devices that work behind the host's back its bytes are there from `ready` on.
struct Parcel {
  Buffer buffer;
  std::shared_ptr<Moment> ready = nullptr;
};

/// What a member brings to a collective; its input may be read from `ready` on.
struct Offer {
  Collective collective;
  std::shared_ptr<Moment> ready = nullptr;
};

/// The meeting point of a group's members for one collective after the other.
class Rendezvous;

/// What the ranks of a process share: mailboxes, meeting points, what each is at, and whether the run is lost.
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
  /// Publishes this member's buffers and waits until all members have done so; then every member may read them all.
  std::vector<Offer> meet(Rendezvous& point, const Group& group, int rank, const Offer& offer);

  /// Throws Aborted when the run has ended.
  void note(int rank, const Activity& activity);
  std::string activity_of(int rank) const;
  /// Ends the run with this message, unless it has already ended; everybody who waits is thrown out.
  void abort(const std::string& message);
  /// Empty as long as the run goes well.
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

}  // namespace flopcast::realrun
