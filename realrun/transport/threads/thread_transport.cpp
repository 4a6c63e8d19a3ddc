#include "realrun/transport/threads/thread_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/device/mark.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

namespace {

// Writes elements `part` of the reduction of all members' inputs to `output`, adding up in the order of the members.
void reduce_part(const std::vector<Collective>& members, const Part& part, std::byte* output) {
  const Collective& first = members.front();
  std::vector<const std::byte*> inputs;
  for (const Collective& member : members) {
    inputs.push_back(member.input.address() + part.first * size_of(first.element));
  }
  reduce_in_order(inputs, part.count, first.element, first.reduction, output);
}

std::size_t all_reduce(const std::vector<Collective>& members, const Group& group, const Collective& collective,
                       const std::function<void()>& meet) {
  const std::size_t element = size_of(collective.element);
  const std::size_t count = collective.input.bytes() / element;
  const Part own = part_of(count, group.index, group.size());
  std::byte* output = collective.output.address();
  reduce_part(members, own, output + own.first * element);
  meet();
  std::size_t read = own.count * element * (members.size() - 1);
  for (int other = 0; other < group.size(); ++other) {
    if (other == group.index) continue;
    const Part part = part_of(count, other, group.size());
    const std::byte* theirs = members[static_cast<std::size_t>(other)].output.address();
    copy_bytes(output + part.first * element, theirs + part.first * element, part.count * element);
    read += part.count * element;
  }
  return read;
}

std::size_t reduce_scatter(const std::vector<Collective>& members, const Group& group, const Collective& collective) {
  FLOPCAST_CHECK(collective.input.bytes() == collective.output.bytes() * members.size());
  const std::size_t count = collective.output.bytes() / size_of(collective.element);
  reduce_part(members, {static_cast<std::size_t>(group.index) * count, count}, collective.output.address());
  return (members.size() - 1) * collective.output.bytes();
}

std::size_t all_gather(const std::vector<Collective>& members, const Collective& collective) {
  const std::size_t bytes = collective.input.bytes();
  FLOPCAST_CHECK(collective.output.bytes() == bytes * members.size());
  for (std::size_t other = 0; other < members.size(); ++other) {
    std::byte* target = collective.output.address() + other * bytes;
    // A member's input may be its own part of its output.
    if (target != members[other].input.address()) copy_bytes(target, members[other].input.address(), bytes);
  }
  return (members.size() - 1) * bytes;
}

std::size_t all_to_all(const std::vector<Collective>& members, const Group& group, const Collective& collective) {
  FLOPCAST_CHECK(collective.input.bytes() == collective.output.bytes());
  FLOPCAST_CHECK(collective.output.bytes() % members.size() == 0);
  const std::size_t part = collective.output.bytes() / members.size();
  const std::size_t offset = static_cast<std::size_t>(group.index) * part;
  for (std::size_t other = 0; other < members.size(); ++other) {
    copy_bytes(collective.output.address() + other * part, members[other].input.address() + offset, part);
  }
  return (members.size() - 1) * part;
}

std::size_t broadcast(const std::vector<Collective>& members, const Group& group, const Collective& collective) {
  const Collective& root = members.at(static_cast<std::size_t>(collective.root));
  if (group.index == collective.root) return (members.size() - 1) * collective.output.bytes();
  copy_bytes(collective.output.address(), root.output.address(), collective.output.bytes());
  return 0;
}

}  // namespace

std::size_t exchange(const std::vector<Collective>& members, const Group& group, const Collective& collective,
                     const std::function<void()>& meet) {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(members, group, collective, meet);
    case CollectiveKind::kReduceScatter:
      return reduce_scatter(members, group, collective);
    case CollectiveKind::kAllGather:
      return all_gather(members, collective);
    case CollectiveKind::kAllToAll:
      return all_to_all(members, group, collective);
    case CollectiveKind::kBroadcast:
      return broadcast(members, group, collective);
    case CollectiveKind::kBarrier:
      break;
  }
  return 0;
}

struct ThreadTransport::Receive : Pending {
  Receive(int sender, const MessageKey& message, Buffer target) : from(sender), key(message), into(std::move(target)) {}
  int from;
  MessageKey key;
  Buffer into;
  bool done = false;
};

void ThreadTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  count_message(buffer.bytes());
  hub_.put(rank_, to, key, {buffer});
}

Request ThreadTransport::receive(int from, const MessageKey& key, const Buffer& into) {
  return std::make_shared<Receive>(from, key, into);
}

void ThreadTransport::wait(const Request& request) {
  auto* receive = dynamic_cast<Receive*>(request.get());
  if (receive == nullptr) {
    await(request);
    return;
  }
  if (receive->done) return;
  const Buffer message = hub_.take(receive->from, rank_, receive->key).buffer;
  FLOPCAST_CHECK(message.bytes() == receive->into.bytes());
  copy_bytes(receive->into.address(), message.address(), message.bytes());
  receive->done = true;
}

void ThreadTransport::execute(Started& started) {
  started.ran.start = {host_clock()};
  execute(started.group, started.offer);
  started.ran.end = {host_clock()};
}

void ThreadTransport::execute(const Group& group, const Offer& offer) {
  const Collective& collective = offer.collective;
  if (group.size() <= 1) {
    if (!collective.output.empty() && collective.input.address() != collective.output.address() &&
        !collective.input.empty()) {
      copy_bytes(collective.output.address(), collective.input.address(), collective.output.bytes());
    }
    return;
  }
  Rendezvous& point = hub_.rendezvous(group.id);
  std::vector<Collective> members;
  for (const Offer& member : meet(point, group, offer)) members.push_back(member.collective);
  const std::size_t sent = exchange(members, group, collective, [&] { hub_.gather(point, group, rank_); });
  // Nobody touches its buffers again before all have read them.
  hub_.gather(point, group, rank_);
  count(collective.kind, group.axis, sent);
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
      hub.abort(fmt::format("rank {} failed in {}: {}", rank, hub.activity_of(rank), error.what()));
    }
  } catch (const std::exception& error) {
    hub.abort(fmt::format("rank {} could not start: {}", rank, error.what()));
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
    threads.emplace_back([&hub, &attendance, rank, &make_transport, &body] {
      run_rank(hub, rank, make_transport, body);
      attendance.leave(rank);
    });
  }
  attendance.wait(hub, options.patience);
  const std::vector<int> missing = attendance.missing();
  if (!missing.empty() && options.abandon) options.abandon(with_missing(hub, missing));
  for (std::thread& thread : threads) thread.join();
  if (!hub.failure().empty()) throw EnvironmentError(hub.failure());
}

}  // namespace flopcast::realrun
