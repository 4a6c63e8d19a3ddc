#include "realrun/transport/threads/hub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

class Rendezvous {
 public:
  std::condition_variable changed;
  std::vector<int> present;                  // ranks that have arrived in this round
  std::array<std::vector<Offer>, 2> offers;  // of this round and the one before, by member
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
  std::vector<Offer>* offers = nullptr;
  {
    const std::lock_guard lock(mutex_);
    // A member that is quicker may be in the next round already, but not in the one after that.
    offers = &point.offers[point.round % point.offers.size()];
    offers->resize(group.members.size());
    (*offers)[static_cast<std::size_t>(group.index)] = offer;
  }
  gather(point, group, rank);
  const std::lock_guard lock(mutex_);
  return *offers;
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

void HubTransport::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
}

void HubTransport::run(const Group& group, const Collective& collective) {
  if (has_started(group)) {
    wait(start(group, collective));
  } else {
    execute(group, offer_of(collective));
  }
}

bool HubTransport::has_started(const Group& group) const {
  const std::lock_guard lock(mutex_);
  const auto is_of_group = [&](const std::shared_ptr<Started>& started) { return started->group.id == group.id; };
  return (under_way_ != nullptr && is_of_group(under_way_)) ||
         std::any_of(waiting_.begin(), waiting_.end(), is_of_group);
}

Request HubTransport::start(const Group& group, const Collective& collective) {
  auto started = std::make_shared<Started>(group, offer_of(collective));
  const std::lock_guard lock(mutex_);
  waiting_.push_back(started);
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  changed_.notify_all();
  return started;
}

void HubTransport::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::shared_ptr<Started> next = waiting_.front();
    waiting_.pop_front();
    under_way_ = next;
    lock.unlock();
    try {
      execute(*next);
    } catch (const std::exception& error) {
      // Aborted changes nothing here; whatever else it is ends the run.
      hub_.abort(error.what());
    }
    lock.lock();
    next->done = true;
    under_way_ = nullptr;
    changed_.notify_all();
  }
}

HubTransport::Started& HubTransport::await(const Request& request) {
  auto* started = dynamic_cast<Started*>(request.get());
  FLOPCAST_CHECK(started != nullptr);
  std::unique_lock lock(mutex_);
  // The second thread has the time limit: when it gives up, it marks its work as done.
  changed_.wait(lock, [&] { return started->done; });
  lock.unlock();
  hub_.throw_if_aborted();
  return *started;
}

std::vector<Offer> HubTransport::meet(Rendezvous& point, const Group& group, const Offer& offer) {
  std::vector<Offer> members = hub_.meet(point, group, rank_, offer);
  for (const Offer& member : members) {
    FLOPCAST_CHECK(member.collective.kind == offer.collective.kind &&
                   member.collective.output.bytes() == offer.collective.output.bytes());
  }
  return members;
}

void HubTransport::count_message(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  traffic_.point_to_point.bytes += bytes;
  ++traffic_.point_to_point.messages;
}

void HubTransport::count(CollectiveKind kind, Axis axis, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  TrafficCount& entry = traffic_.collectives[{kind, axis}];
  ++entry.messages;
  entry.bytes += bytes;
}

SentTraffic HubTransport::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace flopcast::realrun
