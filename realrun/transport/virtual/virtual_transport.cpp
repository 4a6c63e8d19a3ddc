#include "realrun/transport/virtual/virtual_transport.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "model/error/error.hpp"
#include "realrun/transport/reduce.hpp"

namespace flopcast::realrun {

struct VirtualTransport::Receive : Pending {
  Receive(int sender, const MessageKey& message, Buffer target, std::shared_ptr<Moment> usable)
      : from(sender), key(message), into(std::move(target)), free(std::move(usable)) {}
  int from;
  MessageKey key;
  Buffer into;
  std::shared_ptr<Moment> free;  // from when on nothing called before uses `into`
  std::shared_ptr<Moment> arrived;
  std::optional<Mark> arrival() const override { return Mark{0, arrived}; }
};

struct VirtualTransport::Started : Pending {
  Started(Group members, Offer operation) : group(std::move(members)), offer(std::move(operation)) {}
  Group group;
  Offer offer;
  Interval interval() const override { return {{0, begin}, {0, end}}; }
  bool called = false;  // guarded by the transport's mutex; the others are written before
  std::shared_ptr<Moment> begin;
  std::shared_ptr<Moment> end;
};

VirtualTransport::VirtualTransport(ThreadHub& hub, int rank, Queues& queues)
    : hub_(hub), rank_(rank), queues_(queues), worker_([this] { work(); }) {}

VirtualTransport::~VirtualTransport() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

Group VirtualTransport::form_group(Axis axis, const std::vector<int>& members) {
  return group_of(groups_++, axis, members, rank_);
}

void VirtualTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  {
    const std::lock_guard lock(mutex_);
    traffic_.point_to_point.bytes += buffer.bytes();
    ++traffic_.point_to_point.messages;
  }
  hub_.put(rank_, to, key, {buffer, queues_.record(Queue::kCompute)});
}

Request VirtualTransport::receive(int from, const MessageKey& key, const Buffer& into) {
  return std::make_shared<Receive>(from, key, into, queues_.record(Queue::kCompute));
}

void VirtualTransport::wait(const Request& request) {
  if (auto* receive = dynamic_cast<Receive*>(request.get())) {
    if (receive->arrived == nullptr) {
      const Parcel message = hub_.take(receive->from, rank_, receive->key);
      FLOPCAST_CHECK(message.buffer.bytes() == receive->into.bytes());
      queues_.wait(Queue::kReceive, receive->free);
      queues_.wait(Queue::kReceive, message.ready);
      queues_.copy(Queue::kReceive, message.buffer, receive->into);
      receive->arrived = queues_.record(Queue::kReceive);
      kept_.keep(receive->arrived, {message.buffer, receive->into});
    }
    queues_.wait(Queue::kCompute, receive->arrived);
    return;
  }
  auto* started = dynamic_cast<Started*>(request.get());
  FLOPCAST_CHECK(started != nullptr);
  std::unique_lock lock(mutex_);
  // The second thread has the time limit: when it gives up, it marks its work as called.
  changed_.wait(lock, [&] { return started->called; });
  lock.unlock();
  hub_.throw_if_aborted();
  queues_.wait(Queue::kCompute, started->end);
}

void VirtualTransport::run(const Group& group, const Collective& collective) {
  if (has_started(group)) {
    wait(start(group, collective));
  } else {
    execute(Queue::kCompute, group, {collective, queues_.record(Queue::kCompute)});
  }
}

bool VirtualTransport::has_started(const Group& group) const {
  const std::lock_guard lock(mutex_);
  const auto is_of_group = [&](const std::shared_ptr<Started>& started) { return started->group.id == group.id; };
  return (under_way_ != nullptr && is_of_group(under_way_)) ||
         std::any_of(waiting_.begin(), waiting_.end(), is_of_group);
}

Request VirtualTransport::start(const Group& group, const Collective& collective) {
  auto started = std::make_shared<Started>(group, Offer{collective, queues_.record(Queue::kCompute)});
  const std::lock_guard lock(mutex_);
  waiting_.push_back(started);
  changed_.notify_all();
  return started;
}

void VirtualTransport::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::shared_ptr<Started> next = waiting_.front();
    waiting_.pop_front();
    under_way_ = next;
    lock.unlock();
    try {
      queues_.wait(Queue::kGradient, next->offer.ready);
      next->begin = queues_.record(Queue::kGradient);
      next->end = execute(Queue::kGradient, next->group, next->offer);
    } catch (const std::exception& error) {
      // Aborted changes nothing here; whatever else it is ends the run.
      hub_.abort(error.what());
    }
    lock.lock();
    next->called = true;
    under_way_ = nullptr;
    changed_.notify_all();
  }
}

// Returns the moment from which on the output is there and no member reads this rank's buffers any more.
std::shared_ptr<Moment> VirtualTransport::execute(Queue queue, const Group& group, const Offer& offer) {
  const Collective& collective = offer.collective;
  if (group.size() <= 1) {
    if (!collective.output.empty() && collective.input.address() != collective.output.address() &&
        !collective.input.empty()) {
      queues_.wait(queue, offer.ready);
      queues_.copy(queue, collective.input, collective.output);
    }
    std::shared_ptr<Moment> end = queues_.record(queue);
    kept_.keep(end, {collective.input, collective.output});
    return end;
  }
  Rendezvous& point = hub_.rendezvous(group.id);
  // Everybody's moments are waited for: nobody reads before the writer is through, or writes before the readers are.
  const auto meet = [&](std::shared_ptr<Moment> own) {
    std::vector<Offer> members = hub_.meet(point, group, rank_, {collective, std::move(own)});
    for (const Offer& member : members) queues_.wait(queue, member.ready);
    return members;
  };
  std::vector<Offer> members = meet(offer.ready);
  for (const Offer& member : members) {
    FLOPCAST_CHECK(member.collective.kind == collective.kind &&
                   member.collective.output.bytes() == collective.output.bytes());
  }
  std::size_t sent = first_phase(queue, members, group, collective);
  if (collective.kind == CollectiveKind::kAllReduce) {
    members = meet(queues_.record(queue));
    sent += collect_parts(queue, members, group, collective);
  }
  members = meet(queues_.record(queue));
  std::shared_ptr<Moment> end = queues_.record(queue);
  std::vector<Buffer> used;
  for (const Offer& member : members) {
    used.push_back(member.collective.input);
    used.push_back(member.collective.output);
  }
  kept_.keep(end, std::move(used));
  count(collective.kind, group.axis, sent);
  return end;
}

// Returns the bytes this member reads of the others' memory, which are as many as it sends; see exchange().
std::size_t VirtualTransport::first_phase(Queue queue, const std::vector<Offer>& members, const Group& group,
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

// The second half of an all-reduce: everybody's part of the output.
std::size_t VirtualTransport::collect_parts(Queue queue, const std::vector<Offer>& members, const Group& group,
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

void VirtualTransport::count(CollectiveKind kind, Axis axis, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  TrafficCount& entry = traffic_.collectives[{kind, axis}];
  ++entry.messages;
  entry.bytes += bytes;
}

Traffic VirtualTransport::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace flopcast::realrun
