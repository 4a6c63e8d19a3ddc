#include "realrun/transport/threads/thread_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

class Rendezvous {
 public:
  std::condition_variable changed;
  std::vector<int> present;                  // ranks that have arrived in this round
  std::array<std::vector<Offer>, 2> offers;  // of this round and the previous one, by member
  std::array<std::size_t, 2> seen{};         // number of members that have read each round's offers
  std::uint64_t round = 0;
};

ThreadHub::ThreadHub(int ranks, std::chrono::milliseconds patience, const std::atomic<int>* interruption)
    : patience_(patience),
      interruption_(interruption),
      mailboxes_(static_cast<std::size_t>(ranks)),
      mail_arrived_(static_cast<std::size_t>(ranks)),
      activities_(static_cast<std::size_t>(ranks)) {}

ThreadHub::~ThreadHub() = default;

// Waits in short pieces: GCC 12's ThreadSanitizer supports only waits on the system clock, and that clock may jump.
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
    // A faster member may be one round ahead, but not two.
    place = point.round % point.offers.size();
    point.offers[place].resize(group.members.size());
    point.offers[place][static_cast<std::size_t>(group.index)] = offer;
  }
  gather(point, group, rank);
  const std::lock_guard lock(mutex_);
  std::vector<Offer> offers = point.offers[place];
  // The buffers would otherwise be kept alive until the group meets again, which may never happen.
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
  // Members may arrive while this rank waits; the first rank to give up reports those missing when it began to wait.
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

namespace {

void abort_run(ThreadHub& hub, int rank, bool has_begun, const std::exception& error) {
  try {
    hub.abort(has_begun ? fmt::format("rank {} failed in {}: {}", rank, hub.activity_of(rank), reason_of(error))
                        : fmt::format("rank {} could not start: {}", rank, reason_of(error)));
  } catch (const std::bad_alloc&) {
    hub.abort("out of memory");  // short enough to need no allocation
  }
}

}  // namespace

struct ThreadTransport::Started : Pending {
  Started(Group members, Offer operation) : group(std::move(members)), offer(std::move(operation)) {}
  Group group;
  Offer offer;
  Interval ran;       // written before `done`, and read after it
  bool done = false;  // guarded by the transport's mutex
  Interval interval() const override { return ran; }
};

struct ThreadTransport::Receive : Pending {
  Receive(int sender, const MessageKey& message, Buffer target, std::shared_ptr<Moment> usable)
      : from(sender), key(message), into(std::move(target)), free(std::move(usable)) {}
  int from;
  MessageKey key;
  Buffer into;
  std::shared_ptr<Moment> free;  // from then on no earlier work uses `into`
  std::shared_ptr<Moment> arrived;
  std::optional<Mark> arrival() const override { return Mark{0, arrived}; }
};

void ThreadTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  {
    const std::lock_guard lock(mutex_);
    traffic_.add_message(buffer.bytes());
  }
  hub_.put(rank_, to, key, {buffer, queues_.record(Queue::kCompute)});
}

Request ThreadTransport::receive(int from, const MessageKey& key, const Buffer& into) {
  return std::make_shared<Receive>(from, key, into, queues_.record(Queue::kCompute));
}

void ThreadTransport::wait(const Request& request) {
  if (const auto* started = dynamic_cast<Started*>(request.get())) {
    await(*started);
    return queues_.wait(Queue::kCompute, started->ran.end.moment);
  }
  auto* receive = dynamic_cast<Receive*>(request.get());
  FLOPCAST_CHECK(receive != nullptr);
  if (receive->arrived == nullptr) {
    const Parcel message = hub_.take(receive->from, rank_, receive->key);
    FLOPCAST_CHECK(message.buffer.bytes() == receive->into.bytes());
    queues_.wait(Queue::kReceive, receive->free);
    queues_.wait(Queue::kReceive, message.ready);
    queues_.copy(Queue::kReceive, message.buffer, receive->into);
    receive->arrived = queues_.record(Queue::kReceive);
    kept_.keep(Queue::kReceive, receive->arrived, {message.buffer, receive->into});
  }
  queues_.wait(Queue::kCompute, receive->arrived);
}

ThreadTransport::~ThreadTransport() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
}

void ThreadTransport::run(const Group& group, const Collective& collective) {
  if (has_started(group)) {
    wait(start(group, collective));
  } else {
    execute(Queue::kCompute, group, offer_of(collective));
  }
}

bool ThreadTransport::has_started(const Group& group) const {
  const std::lock_guard lock(mutex_);
  const auto is_of_group = [&](const std::shared_ptr<Started>& started) { return started->group.id == group.id; };
  return (under_way_ != nullptr && is_of_group(under_way_)) ||
         std::any_of(waiting_.begin(), waiting_.end(), is_of_group);
}

Request ThreadTransport::start(const Group& group, const Collective& collective) {
  auto started = std::make_shared<Started>(group, offer_of(collective));
  const std::lock_guard lock(mutex_);
  waiting_.push_back(started);
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  changed_.notify_all();
  return started;
}

void ThreadTransport::work() {
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
    } catch (const Aborted&) {
      // already reported
    } catch (const std::exception& error) {
      abort_run(hub_, rank_, true, error);
    }
    lock.lock();
    next->done = true;
    under_way_ = nullptr;
    changed_.notify_all();
  }
}

void ThreadTransport::await(const Started& started) {
  std::unique_lock lock(mutex_);
  // The second thread enforces the time limit: if it gives up, it marks its work as done.
  changed_.wait(lock, [&] { return started.done; });
  lock.unlock();
  hub_.throw_if_aborted();
}

SentTraffic ThreadTransport::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

void ThreadTransport::execute(Started& started) {
  queues_.wait(Queue::kGradient, started.offer.ready);
  started.ran.start = {0, queues_.record(Queue::kGradient)};
  started.ran.end = {0, execute(Queue::kGradient, started.group, started.offer)};
}

// Returns the moment from which on the output is valid and no member reads this rank's buffers.
std::shared_ptr<Moment> ThreadTransport::execute(Queue queue, const Group& group, const Offer& offer) {
  const Collective& collective = offer.collective;
  if (group.size() <= 1) {
    if (copies_own(collective)) {
      queues_.wait(queue, offer.ready);
      queues_.copy(queue, collective.input, collective.output);
    }
    std::shared_ptr<Moment> end = queues_.record(queue);
    kept_.keep(queue, end, {collective.input, collective.output});
    return end;
  }
  Rendezvous& point = hub_.rendezvous(group.id);
  // Waits for all members' moments: nobody reads before the writer is done, or writes before the readers are.
  const auto meet_at = [&](std::shared_ptr<Moment> own) {
    std::vector<Offer> members = hub_.meet(point, group, rank_, {collective, std::move(own)});
    for (const Offer& member : members) {
      FLOPCAST_CHECK(member.collective.kind == collective.kind &&
                     (!collective.sent.empty() || member.collective.output.bytes() == collective.output.bytes()));
      queues_.wait(queue, member.ready);
    }
    return members;
  };
  std::vector<Offer> members = meet_at(offer.ready);
  if (has_phase(collective.kind, CollectivePhase::kReduce)) reduce(queue, members, group);
  if (collective.kind == CollectiveKind::kAllReduce) members = meet_at(queues_.record(queue));
  if (has_phase(collective.kind, CollectivePhase::kCollect)) collect(queue, members, group);
  members = meet_at(queues_.record(queue));
  std::shared_ptr<Moment> end = queues_.record(queue);
  std::vector<Buffer> used;
  for (const Offer& member : members) {
    used.push_back(member.collective.input);
    used.push_back(member.collective.output);
  }
  kept_.keep(queue, end, std::move(used));
  const std::lock_guard lock(mutex_);
  traffic_.add(group, collective);
  return end;
}

// A member reads as many bytes of the others' memory as it sends.
void ThreadTransport::reduce(Queue queue, const std::vector<Offer>& members, const Group& group) {
  const Collective& own = members[static_cast<std::size_t>(group.index)].collective;
  std::vector<Buffer> inputs;
  for (int member = 0; member < group.size(); ++member) {
    const Collective& theirs = members[static_cast<std::size_t>(member)].collective;
    const ByteRange part = leaving(group_of_member(group, member), theirs, CollectivePhase::kReduce, group.index);
    if (part.bytes == 0) return;
    inputs.push_back(theirs.input.slice(part.first, part.bytes));
  }
  const ByteRange sum = arriving(group, own, CollectivePhase::kReduce, group.index);
  queues_.reduce(queue, inputs, own.element, own.reduction, own.output.slice(sum.first, sum.bytes));
}

void ThreadTransport::collect(Queue queue, const std::vector<Offer>& members, const Group& group) {
  const Collective& own = members[static_cast<std::size_t>(group.index)].collective;
  for (int member = 0; member < group.size(); ++member) {
    const Collective& theirs = members[static_cast<std::size_t>(member)].collective;
    const ByteRange from = leaving(group_of_member(group, member), theirs, CollectivePhase::kCollect, group.index);
    const ByteRange into = arriving(group, own, CollectivePhase::kCollect, member);
    FLOPCAST_CHECK(from.bytes == into.bytes);
    if (into.bytes == 0) continue;
    const Buffer source = sent_buffer(theirs, CollectivePhase::kCollect).slice(from.first, from.bytes);
    const Buffer target = own.output.slice(into.first, into.bytes);
    // A member's input may be its own part of its output.
    if (source.address() != target.address()) queues_.copy(queue, source, target);
  }
}

namespace {

void run_rank(ThreadHub& hub, int rank, const MakeTransport& make_transport,
              const std::function<void(RankTransport&)>& body) {
  try {
    const std::unique_ptr<RankTransport> transport = make_transport(hub, rank);
    try {
      body(*transport);
      transport->note({.kind = Activity::Kind::kDone, .action = {}});
    } catch (const Aborted&) {
      return;  // another rank's failure, already reported
    } catch (const std::exception& error) {
      // Before the transport is destroyed, because its second thread may wait for others.
      abort_run(hub, rank, true, error);
    }
  } catch (const std::exception& error) {
    abort_run(hub, rank, false, error);
  }
}

/// Tracks which ranks have finished.
class Attendance {
 public:
  explicit Attendance(int ranks) : ended_(static_cast<std::size_t>(ranks), false) {}

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

  /// Returns once all have left, or if some have not by `patience` after the run was lost.
  void wait(const ThreadHub& hub, std::chrono::milliseconds patience) {
    using Steady = std::chrono::steady_clock;
    constexpr auto kPiece = std::chrono::milliseconds(100);
    std::optional<Steady::time_point> deadline;
    std::unique_lock lock(mutex_);
    while (std::count(ended_.begin(), ended_.end(), false) > 0) {
      if (!deadline && !hub.failure().empty()) deadline = Steady::now() + patience;
      if (deadline && Steady::now() >= *deadline) return;
      changed_.wait_until(lock, std::chrono::system_clock::now() + kPiece);
    }
  }

  std::vector<int> missing() const {
    const std::lock_guard lock(mutex_);
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < ended_.size(); ++rank) {
      if (!ended_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ended_;
};

std::string with_missing(const ThreadHub& hub, const std::vector<int>& missing) {
  std::string failure = hub.failure();
  for (const int rank : missing) {
    failure += fmt::format("; rank {} has not returned from {}", rank, hub.activity_of(rank));
  }
  return failure;
}

}  // namespace

void run_threads(int ranks, const ThreadOptions& options, const std::function<void(RankTransport&)>& body) {
  run_threads(
      ranks, options, [](ThreadHub& hub, int rank) { return std::make_unique<ThreadTransport>(hub, rank); }, body);
}

void run_threads(int ranks, const ThreadOptions& options, const MakeTransport& make_transport,
                 const std::function<void(RankTransport&)>& body) {
  FLOPCAST_CHECK(ranks > 0);
  ThreadHub hub(ranks, options.patience, options.interruption);
  Attendance attendance(ranks);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back([&hub, &attendance, rank, &make_transport, &body] {
        run_rank(hub, rank, make_transport, body);
        attendance.leave(rank);
      });
    } catch (const std::exception& error) {
      // Running ranks wait for those that did not start.
      abort_run(hub, rank, false, error);
      for (int missing = rank; missing < ranks; ++missing) attendance.leave(missing);
      break;
    }
  }
  attendance.wait(hub, options.patience);
  const std::vector<int> missing = attendance.missing();
  if (!missing.empty() && options.abandon) options.abandon(with_missing(hub, missing));
  for (std::thread& thread : threads) thread.join();
  if (!hub.failure().empty()) throw EnvironmentError(hub.failure());
}

}  // namespace flopcast::realrun
