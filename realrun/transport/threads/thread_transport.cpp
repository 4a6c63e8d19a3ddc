#include "realrun/transport/threads/thread_transport.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "model/error/error.hpp"
#include "realrun/compute/host_clock.hpp"
#include "realrun/transport/threads/collectives.hpp"

namespace flopcast::realrun {

struct ThreadTransport::Receive : Pending {
  Receive(int sender, const MessageKey& message, Buffer target) : from(sender), key(message), into(std::move(target)) {}
  int from;
  MessageKey key;
  Buffer into;
  bool done = false;
};

struct ThreadTransport::Started : Pending {
  Started(Group members, Collective operation) : group(std::move(members)), collective(std::move(operation)) {}
  Group group;
  Collective collective;
  Interval interval() const override { return ran; }
  bool done = false;  // guarded by the transport's mutex
  Interval ran;       // written before, and read after `done`
};

ThreadTransport::ThreadTransport(ThreadHub& hub, int rank) : hub_(hub), rank_(rank), worker_([this] { work(); }) {}

ThreadTransport::~ThreadTransport() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

Group ThreadTransport::form_group(Axis axis, const std::vector<int>& members) {
  return group_of(groups_++, axis, members, rank_);
}

void ThreadTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  {
    const std::lock_guard lock(mutex_);
    traffic_.point_to_point.bytes += buffer.bytes();
    ++traffic_.point_to_point.messages;
  }
  hub_.put(rank_, to, key, {buffer});
}

Request ThreadTransport::receive(int from, const MessageKey& key, const Buffer& into) {
  return std::make_shared<Receive>(from, key, into);
}

void ThreadTransport::wait(const Request& request) {
  if (auto* receive = dynamic_cast<Receive*>(request.get())) {
    if (receive->done) return;
    const Buffer message = hub_.take(receive->from, rank_, receive->key).buffer;
    FLOPCAST_CHECK(message.bytes() == receive->into.bytes());
    copy_bytes(receive->into.address(), message.address(), message.bytes());
    receive->done = true;
    return;
  }
  auto* started = dynamic_cast<Started*>(request.get());
  FLOPCAST_CHECK(started != nullptr);
  std::unique_lock lock(mutex_);
  // The second thread has the time limit: when it gives up, it marks its work as done.
  changed_.wait(lock, [&] { return started->done; });
  lock.unlock();
  hub_.throw_if_aborted();
}

void ThreadTransport::run(const Group& group, const Collective& collective) {
  if (has_started(group)) {
    wait(start(group, collective));
  } else {
    execute(group, collective);
  }
}

bool ThreadTransport::has_started(const Group& group) const {
  const std::lock_guard lock(mutex_);
  const auto is_of_group = [&](const std::shared_ptr<Started>& started) { return started->group.id == group.id; };
  return (under_way_ != nullptr && is_of_group(under_way_)) || std::any_of(queue_.begin(), queue_.end(), is_of_group);
}

Request ThreadTransport::start(const Group& group, const Collective& collective) {
  auto started = std::make_shared<Started>(group, collective);
  const std::lock_guard lock(mutex_);
  queue_.push_back(started);
  changed_.notify_all();
  return started;
}

void ThreadTransport::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Started> next = queue_.front();
    queue_.pop_front();
    under_way_ = next;
    lock.unlock();
    next->ran.start = {host_clock()};
    try {
      execute(next->group, next->collective);
    } catch (const std::exception& error) {
      // Aborted changes nothing here; whatever else it is ends the run.
      hub_.abort(error.what());
    }
    next->ran.end = {host_clock()};
    lock.lock();
    next->done = true;
    under_way_ = nullptr;
    changed_.notify_all();
  }
}

void ThreadTransport::execute(const Group& group, const Collective& collective) {
  if (group.size() <= 1) {
    if (!collective.output.empty() && collective.input.address() != collective.output.address() &&
        !collective.input.empty()) {
      copy_bytes(collective.output.address(), collective.input.address(), collective.output.bytes());
    }
    return;
  }
  Rendezvous& point = hub_.rendezvous(group.id);
  std::vector<Collective> members;
  for (const Offer& offer : hub_.meet(point, group, rank_, {collective})) {
    members.push_back(offer.collective);
    FLOPCAST_CHECK(members.back().kind == collective.kind &&
                   members.back().output.bytes() == collective.output.bytes());
  }
  const std::size_t sent = exchange(members, group, collective, [&] { hub_.gather(point, group, rank_); });
  // Nobody touches its buffers again before all have read them.
  hub_.gather(point, group, rank_);
  count(collective.kind, group.axis, sent);
}

void ThreadTransport::count(CollectiveKind kind, Axis axis, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  TrafficCount& entry = traffic_.collectives[{kind, axis}];
  ++entry.messages;
  entry.bytes += bytes;
}

Traffic ThreadTransport::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace flopcast::realrun
