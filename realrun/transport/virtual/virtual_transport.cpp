#include "realrun/transport/virtual/virtual_transport.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/transport/transport.hpp"

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

void VirtualTransport::send(int to, const MessageKey& key, const Buffer& buffer) {
  count_message(buffer.bytes());
  hub_.put(rank_, to, key, {buffer, queues_.record(Queue::kCompute)});
}

Request VirtualTransport::receive(int from, const MessageKey& key, const Buffer& into) {
  return std::make_shared<Receive>(from, key, into, queues_.record(Queue::kCompute));
}

void VirtualTransport::wait(const Request& request) {
  auto* receive = dynamic_cast<Receive*>(request.get());
  if (receive == nullptr) {
    queues_.wait(Queue::kCompute, await(request).ran.end.moment);
    return;
  }
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
}

void VirtualTransport::execute(Started& started) {
  queues_.wait(Queue::kGradient, started.offer.ready);
  started.ran.start = {0, queues_.record(Queue::kGradient)};
  started.ran.end = {0, enqueue(Queue::kGradient, started.group, started.offer)};
}

// Returns the moment from which on the output is there and no member reads this rank's buffers any more.
std::shared_ptr<Moment> VirtualTransport::enqueue(Queue queue, const Group& group, const Offer& offer) {
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
  const auto meet_at = [&](std::shared_ptr<Moment> own) {
    std::vector<Offer> members = meet(point, group, {collective, std::move(own)});
    for (const Offer& member : members) queues_.wait(queue, member.ready);
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

}  // namespace flopcast::realrun
