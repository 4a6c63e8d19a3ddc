#include "realrun/transport/threads/collectives.hpp"

#include "model/error/error.hpp"
#include "realrun/transport/reduce.hpp"

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

}  // namespace flopcast::realrun
