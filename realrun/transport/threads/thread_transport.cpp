#include "realrun/transport/threads/thread_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

std::string failure_of(const ThreadHub& hub, int rank, const std::exception& error) {
  return fmt::format("rank {} failed in {}: {}", rank, hub.activity_of(rank), reason_of(error));
}

}  // namespace

struct ThreadTransport::Started : Pending {
  Started(Group members, Offer operation) : group(std::move(members)), offer(std::move(operation)) {}
  Group group;
  Offer offer;
  Interval ran;       // written before, and read after `done`
  bool done = false;  // guarded by the transport's mutex
  Interval interval() const override { return ran; }
};

struct ThreadTransport::Receive : Pending {
  Receive(int sender, const MessageKey& message, Buffer target, std::shared_ptr<Moment> usable)
      : from(sender), key(message), into(std::move(target)), free(std::move(usable)) {}
  int from;
  MessageKey key;
  Buffer into;
  std::shared_ptr<Moment> free;  // from when on nothing called before uses `into`
  std::shared_ptr<Moment> arrived;
  std::optional<Mark> arrival() const override { return Mark{0, arrived}; }
};

void ThreadTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  {
    const std::lock_guard lock(mutex_);
    traffic_.point_to_point.bytes += buffer.bytes();
    ++traffic_.point_to_point.messages;
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
      // told already
    } catch (const std::exception& error) {
      hub_.abort(failure_of(hub_, rank_, error));
    }
    lock.lock();
    next->done = true;
    under_way_ = nullptr;
    changed_.notify_all();
  }
}

void ThreadTransport::await(const Started& started) {
  std::unique_lock lock(mutex_);
  // The second thread has the time limit: when it gives up, it marks its work as done.
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

// Returns the moment from which on the output is there and no member reads this rank's buffers any more.
std::shared_ptr<Moment> ThreadTransport::execute(Queue queue, const Group& group, const Offer& offer) {
  const Collective& collective = offer.collective;
  if (group.size() <= 1) {
    if (!collective.output.empty() && collective.input.address() != collective.output.address() &&
        !collective.input.empty()) {
      queues_.wait(queue, offer.ready);
      queues_.copy(queue, collective.input, collective.output);
    }
    std::shared_ptr<Moment> end = queues_.record(queue);
    kept_.keep(queue, end, {collective.input, collective.output});
    return end;
  }
  Rendezvous& point = hub_.rendezvous(group.id);
  // Everybody's moments are waited for: nobody reads before the writer is through, or writes before the readers are.
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
  std::size_t sent = first_phase(queue, members, group, collective);
  if (collective.kind == CollectiveKind::kAllReduce) {
    members = meet_at(queues_.record(queue));
    sent += collect_parts(queue, members, group, collective);
  }
  members = meet_at(queues_.record(queue));
  std::shared_ptr<Moment> end = queues_.record(queue);
  std::vector<Buffer> used;
  for (const Offer& member : members) {
    used.push_back(member.collective.input);
    used.push_back(member.collective.output);
  }
  kept_.keep(queue, end, std::move(used));
  const std::lock_guard lock(mutex_);
  TrafficCount& entry = traffic_.collectives[{collective.kind, group.axis}];
  ++entry.messages;
  entry.bytes += sent;
  return end;
}

// Returns the bytes this member reads of the others' memory, which are as many as it sends: with n members and S bytes
// (n-1)/n·S for the reduction of its own part, and as much for the collection of the others' parts.
std::size_t ThreadTransport::first_phase(Queue queue, const std::vector<Offer>& members, const Group& group,
                                         const Collective& collective) {
  const std::size_t others = members.size() - 1;
  const auto index = static_cast<std::size_t>(group.index);
  const auto reduce = [&](std::size_t offset, std::size_t bytes, const Buffer& output) {
    if (bytes == 0) return;
    std::vector<Buffer> inputs;
    for (const Offer& member : members) inputs.push_back(member.collective.input.slice(offset, bytes));
    queues_.reduce(queue, inputs, collective.element, collective.reduction, output);
  };
  switch (collective.kind) {
    case CollectiveKind::kAllReduce: {
      const std::size_t element = size_of(collective.element);
      const Part own = part_of(collective.input.bytes() / element, group.index, group.size());
      const std::size_t bytes = own.count * element;
      reduce(own.first * element, bytes, collective.output.slice(own.first * element, bytes));
      return bytes * others;
    }
    case CollectiveKind::kReduceScatter: {
      const std::size_t bytes = collective.output.bytes();
      FLOPCAST_CHECK(collective.input.bytes() == bytes * members.size());
      reduce(index * bytes, bytes, collective.output);
      return bytes * others;
    }
    case CollectiveKind::kAllGather: {
      const std::size_t bytes = collective.input.bytes();
      FLOPCAST_CHECK(collective.output.bytes() == bytes * members.size());
      for (std::size_t other = 0; other < members.size(); ++other) {
        const Buffer target = collective.output.slice(other * bytes, bytes);
        // A member's input may be its own part of its output.
        const Buffer& theirs = members[other].collective.input;
        if (target.address() != theirs.address()) queues_.copy(queue, theirs, target);
      }
      return bytes * others;
    }
    case CollectiveKind::kAllToAll: {
      if (!collective.sent.empty()) return take_parts(queue, members, index, collective);
      FLOPCAST_CHECK(collective.input.bytes() == collective.output.bytes());
      FLOPCAST_CHECK(collective.output.bytes() % members.size() == 0);
      const std::size_t part = collective.output.bytes() / members.size();
      for (std::size_t other = 0; other < members.size(); ++other) {
        queues_.copy(queue, members[other].collective.input.slice(index * part, part),
                     collective.output.slice(other * part, part));
      }
      return part * others;
    }
    case CollectiveKind::kBroadcast: {
      if (group.index == collective.root) return others * collective.output.bytes();
      queues_.copy(queue, members.at(static_cast<std::size_t>(collective.root)).collective.output, collective.output);
      return 0;
    }
    case CollectiveKind::kBarrier:
      break;
  }
  return 0;
}

// An all-to-all of parts of any size. Returns what this member sends.
std::size_t ThreadTransport::take_parts(Queue queue, const std::vector<Offer>& members, std::size_t index,
                                        const Collective& collective) {
  std::size_t into = 0;
  std::size_t sent = 0;
  for (std::size_t other = 0; other < members.size(); ++other) {
    const Collective& theirs = members[other].collective;
    const std::size_t bytes = collective.received[other];
    FLOPCAST_CHECK(theirs.sent.at(index) == bytes);
    const auto own = theirs.sent.begin() + static_cast<std::ptrdiff_t>(index);
    const std::size_t from = std::accumulate(theirs.sent.begin(), own, std::size_t{0});
    if (bytes > 0) queues_.copy(queue, theirs.input.slice(from, bytes), collective.output.slice(into, bytes));
    into += bytes;
    if (other != index) sent += collective.sent[other];
  }
  return sent;
}

// The second half of an all-reduce: everybody's part of the output.
std::size_t ThreadTransport::collect_parts(Queue queue, const std::vector<Offer>& members, const Group& group,
                                           const Collective& collective) {
  const std::size_t element = size_of(collective.element);
  std::size_t read = 0;
  for (int other = 0; other < group.size(); ++other) {
    if (other == group.index) continue;
    const Part part = part_of(collective.input.bytes() / element, other, group.size());
    const std::size_t bytes = part.count * element;
    if (bytes == 0) continue;
    const Buffer& theirs = members[static_cast<std::size_t>(other)].collective.output;
    queues_.copy(queue, theirs.slice(part.first * element, bytes),
                 collective.output.slice(part.first * element, bytes));
    read += bytes;
  }
  return read;
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
      return;  // somebody else's failure, already told
    } catch (const std::exception& error) {
      // Before the transport is taken down: its second thread may wait for others.
      hub.abort(failure_of(hub, rank, error));
    }
  } catch (const std::exception& error) {
    hub.abort(fmt::format("rank {} could not start: {}", rank, reason_of(error)));
  }
}

/// Which ranks have come to their end.
class Attendance {
 public:
  explicit Attendance(int ranks) : ended_(static_cast<std::size_t>(ranks), false) {}

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

  /// Returns when all have left, or when some have not `patience` after the run was lost.
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
    failure += fmt::format("; rank {} has not come back from {}", rank, hub.activity_of(rank));
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
    } catch (const std::system_error& error) {
      // Those that run wait for the ones that do not.
      hub.abort(fmt::format("rank {} has got no thread: {}", rank, error.code().message()));
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
