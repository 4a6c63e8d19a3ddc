#include "realrun/transport/threads/collectives.hpp"

#include <algorithm>
#include <cstring>

#include "model/error/error.hpp"

namespace flopcast::realrun {

namespace {

// Part `index` of `parts` nearly equal ones of `count` elements.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};

Part part_of(std::size_t count, int index, int parts) {
  const auto place = static_cast<std::size_t>(index);
  const auto total = static_cast<std::size_t>(parts);
  const std::size_t first = count * place / total;
  return {first, count * (place + 1) / total - first};
}

template <class T>
void reduce_as(const std::vector<Collective>& members, const Part& part, std::byte* output) {
  T* result = reinterpret_cast<T*>(output);
  const bool sums = members.front().reduction == Reduction::kSum;
  const auto input_of = [&](const Collective& member) {
    return reinterpret_cast<const T*>(member.input.address()) + part.first;
  };
  // Element by element, so that the result may overwrite this member's own input.
  for (std::size_t index = 0; index < part.count; ++index) {
    T value = input_of(members.front())[index];
    for (std::size_t member = 1; member < members.size(); ++member) {
      const T next = input_of(members[member])[index];
      value = sums ? value + next : std::max(value, next);
    }
    result[index] = value;
  }
}

// Writes elements `part` of the reduction of all members' inputs to `output`, adding up in the order of the members.
void reduce_part(const std::vector<Collective>& members, const Part& part, std::byte* output) {
  switch (members.front().element) {
    case Element::kFloat32:
      return reduce_as<float>(members, part, output);
    case Element::kFloat64:
      return reduce_as<double>(members, part, output);
    case Element::kByte:
      break;
  }
  FLOPCAST_CHECK(false && "bytes cannot be added up");
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
    std::memcpy(output + part.first * element, theirs + part.first * element, part.count * element);
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
    if (target != members[other].input.address()) std::memcpy(target, members[other].input.address(), bytes);
  }
  return (members.size() - 1) * bytes;
}

std::size_t all_to_all(const std::vector<Collective>& members, const Group& group, const Collective& collective) {
  FLOPCAST_CHECK(collective.input.bytes() == collective.output.bytes());
  FLOPCAST_CHECK(collective.output.bytes() % members.size() == 0);
  const std::size_t part = collective.output.bytes() / members.size();
  const std::size_t offset = static_cast<std::size_t>(group.index) * part;
  for (std::size_t other = 0; other < members.size(); ++other) {
    std::memcpy(collective.output.address() + other * part, members[other].input.address() + offset, part);
  }
  return (members.size() - 1) * part;
}

std::size_t broadcast(const std::vector<Collective>& members, const Group& group, const Collective& collective) {
  const Collective& root = members.at(static_cast<std::size_t>(collective.root));
  if (group.index == collective.root) return (members.size() - 1) * collective.output.bytes();
  std::memcpy(collective.output.address(), root.output.address(), collective.output.bytes());
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
