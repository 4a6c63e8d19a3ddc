#include "realrun/transport/threads/hub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

class Rendezvous {
 public:
  std::condition_variable changed;
  std::vector<int> present;                  // ranks that have arrived in this round
  std::array<std::vector<Offer>, 2> offers;  // of this round and the one before, by member
  std::array<std::size_t, 2> seen{};         // by so many members
  std::uint64_t round = 0;
};

ThreadHub::ThreadHub(int ranks, std::chrono::milliseconds patience, const std::atomic<int>* interruption)
    : patience_(patience),
      interruption_(interruption),
      mailboxes_(static_cast<std::size_t>(ranks)),
      mail_arrived_(static_cast<std::size_t>(ranks)),
      activities_(static_cast<std::size_t>(ranks)) {}

ThreadHub::~ThreadHub() = default;

// Sleeps in short pieces: ThreadSanitizer of GCC 12 knows waits by the system clock only, and that clock may jump.
template <class Ready>
void ThreadHub::wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, int rank,
                           const std::string& awaited, Ready ready) {
  using Steady = std::chrono::steady_clock;
  constexpr auto kPiece = std::chrono::milliseconds(100);
  const auto deadline = Steady::now() + patience_;
  while (!ready()) {
    throw_if_lost_locked(rank);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Steady::now());
    if (left.count() <= 0) {
      abort_locked(fmt::format("rank {} is stuck in {}: it has waited {} ms for {}", rank,
                               to_string(activities_[static_cast<std::size_t>(rank)]), patience_.count(), awaited));
      throw Aborted(failure_);
    }
    wake.wait_until(lock, std::chrono::system_clock::now() + std::min(kPiece, left));
  }
}

void ThreadHub::put(int from, int to, const MessageKey& key, Parcel parcel) {
  const auto index = static_cast<std::size_t>(to);
  const std::lock_guard lock(mutex_);
  mailboxes_.at(index)[{from, key}].push_back(std::move(parcel));
  mail_arrived_[index].notify_all();
}

Parcel ThreadHub::take(int from, int to, const MessageKey& key) {
  const auto index = static_cast<std::size_t>(to);
  std::unique_lock lock(mutex_);
  std::deque<Parcel>& messages = mailboxes_.at(index)[{from, key}];
  if (messages.empty()) {
    const std::string awaited = fmt::format("{} from rank {}, which is in {}", to_string(key), from,
                                            to_string(activities_[static_cast<std::size_t>(from)]));
    wait_until(lock, mail_arrived_[index], to, awaited, [&] { return !messages.empty(); });
  }
  Parcel parcel = std::move(messages.front());
  messages.pop_front();
  if (messages.empty()) mailboxes_[index].erase({from, key});
  return parcel;
}

Rendezvous& ThreadHub::rendezvous(int group) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Rendezvous>& point = rendezvous_[group];
  if (point == nullptr) point = std::make_unique<Rendezvous>();
  return *point;
}

std::string ThreadHub::missing_members(const Group& group, const Rendezvous& point) const {
  std::string missing;
  for (const int member : group.members) {
    if (std::find(point.present.begin(), point.present.end(), member) != point.present.end()) continue;
    missing += fmt::format("{}rank {}, which is in {}", missing.empty() ? "" : ", ", member,
                           to_string(activities_[static_cast<std::size_t>(member)]));
  }
  return missing;
}

std::vector<Offer> ThreadHub::meet(Rendezvous& point, const Group& group, int rank, const Offer& offer) {
  std::size_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    // A member that is quicker may be in the next round already, but not in the one after that.
    place = point.round % point.offers.size();
    point.offers[place].resize(group.members.size());
    point.offers[place][static_cast<std::size_t>(group.index)] = offer;
  }
  gather(point, group, rank);
  const std::lock_guard lock(mutex_);
  std::vector<Offer> offers = point.offers[place];
  // The buffers would be kept alive until the group meets again, which may be never.
  if (++point.seen[place] == offers.size()) {
    point.offers[place].clear();
    point.seen[place] = 0;
  }
  return offers;
}

void ThreadHub::gather(Rendezvous& point, const Group& group, int rank) {
  std::unique_lock lock(mutex_);
  point.present.push_back(rank);
  if (point.present.size() == group.members.size()) {
    point.present.clear();
    ++point.round;
    point.changed.notify_all();
    return;
  }
  const std::uint64_t round = point.round;
  // Who is missing may change while waiting; the first to give up tells what it saw when it began.
  const std::string awaited = fmt::format("a collective with {}", missing_members(group, point));
  wait_until(lock, point.changed, rank, awaited, [&] { return point.round != round; });
}

void ThreadHub::note(int rank, const Activity& activity) {
  const std::lock_guard lock(mutex_);
  activities_.at(static_cast<std::size_t>(rank)) = activity;
  throw_if_lost_locked(rank);
}

void ThreadHub::throw_if_lost_locked(int rank) {
  const int signal = interruption_ == nullptr ? 0 : interruption_->load();
  if (signal != 0) {
    abort_locked(fmt::format("stopped by signal {} while rank {} was in {}", signal, rank,
                             to_string(activities_[static_cast<std::size_t>(rank)])));
  }
  if (aborted_) throw Aborted(failure_);
}

std::string ThreadHub::activity_of(int rank) const {
  const std::lock_guard lock(mutex_);
  return to_string(activities_.at(static_cast<std::size_t>(rank)));
}

void ThreadHub::abort_locked(const std::string& message) {
  if (aborted_) return;
  aborted_ = true;
  failure_ = message;
  for (std::condition_variable& wake : mail_arrived_) wake.notify_all();
  for (const auto& [group, point] : rendezvous_) point->changed.notify_all();
}

void ThreadHub::abort(const std::string& message) {
  const std::lock_guard lock(mutex_);
  abort_locked(message);
}

std::string ThreadHub::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ThreadHub::throw_if_aborted() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Aborted(failure_);
}

}  // namespace flopcast::realrun
