#include "realrun/transport/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <system_error>

#include "base/text/error.hpp"

namespace flopcast::realrun {

std::string reason_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return fmt::format("no thread could be started: {}", system->code().message());
  }
  return error.what();
}

std::vector<std::vector<int>> strided_parts(const std::vector<int>& all, int count, int every) {
  std::vector<std::vector<int>> parts;
  for (int first = 0; first < static_cast<int>(all.size()); ++first) {
    if (first / every % count != 0) continue;
    std::vector<int>& members = parts.emplace_back();
    for (int index = 0; index < count; ++index) {
      members.push_back(all.at(static_cast<std::size_t>(first + index * every)));
    }
  }
  return parts;
}

Group group_of(int id, Axis axis, const std::vector<int>& members, int rank) {
  Group group;
  group.id = id;
  group.axis = axis;
  const auto self = std::find(members.begin(), members.end(), rank);
  if (self == members.end()) return group;
  group.members = members;
  group.index = static_cast<int>(self - members.begin());
  return group;
}

Group group_of_member(const Group& group, int index) {
  Group other = group;
  other.index = index;
  return other;
}

bool copies_own(const Collective& collective) {
  return !collective.output.empty() && !collective.input.empty() &&
         collective.input.address() != collective.output.address();
}

bool has_phase(CollectiveKind kind, CollectivePhase phase) {
  const bool reduces = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  return phase == CollectivePhase::kReduce ? reduces : kind != CollectiveKind::kReduceScatter;
}

const Buffer& sent_buffer(const Collective& collective, CollectivePhase phase) {
  const bool holds_result = collective.kind == CollectiveKind::kBroadcast ||
                            (collective.kind == CollectiveKind::kAllReduce && phase == CollectivePhase::kCollect);
  return holds_result ? collective.output : collective.input;
}

namespace {

// A member's part of the sum; elements are not split.
ByteRange summed_part(const Group& group, const Collective& collective, int member) {
  FLOPCAST_CHECK(collective.input.bytes() == collective.output.bytes());
  const std::size_t element = size_of(collective.element);
  const Part part = part_of(collective.input.bytes() / element, member, group.size());
  return {part.first * element, part.count * element};
}

// One of the equal parts of a buffer, or of the parts with the given sizes.
ByteRange exchanged_part(const Group& group, const Buffer& buffer, const std::vector<std::size_t>& sizes, int member) {
  const auto index = static_cast<std::size_t>(member);
  if (!sizes.empty()) {
    return {std::accumulate(sizes.begin(), sizes.begin() + member, std::size_t{0}), sizes.at(index)};
  }
  FLOPCAST_CHECK(buffer.bytes() % group.members.size() == 0);
  const std::size_t part = buffer.bytes() / group.members.size();
  return {index * part, part};
}

}  // namespace

ByteRange leaving(const Group& group, const Collective& collective, CollectivePhase phase, int to) {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return summed_part(group, collective, phase == CollectivePhase::kReduce ? to : group.index);
    case CollectiveKind::kReduceScatter:
      FLOPCAST_CHECK(collective.input.bytes() == collective.output.bytes() * group.members.size());
      return exchanged_part(group, collective.input, {}, to);
    case CollectiveKind::kAllGather:
      return {0, collective.input.bytes()};
    case CollectiveKind::kAllToAll:
      return exchanged_part(group, collective.input, collective.sent, to);
    case CollectiveKind::kBroadcast:
      return {0, group.index == collective.root ? collective.output.bytes() : 0};
    case CollectiveKind::kBarrier:
      break;
  }
  return {};
}

ByteRange arriving(const Group& group, const Collective& collective, CollectivePhase phase, int from) {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return summed_part(group, collective, phase == CollectivePhase::kReduce ? group.index : from);
    case CollectiveKind::kReduceScatter:
      return {0, collective.output.bytes()};
    case CollectiveKind::kAllGather:
      FLOPCAST_CHECK(collective.output.bytes() == collective.input.bytes() * group.members.size());
      return exchanged_part(group, collective.output, {}, from);
    case CollectiveKind::kAllToAll:
      return exchanged_part(group, collective.output, collective.received, from);
    case CollectiveKind::kBroadcast:
      return {0, from == collective.root ? collective.output.bytes() : 0};
    case CollectiveKind::kBarrier:
      break;
  }
  return {};
}

void SentTraffic::add_message(std::size_t bytes) {
  point_to_point.bytes += bytes;
  ++point_to_point.messages;
}

void SentTraffic::add(const Group& group, const Collective& collective) {
  std::size_t bytes = 0;
  for (const CollectivePhase phase : {CollectivePhase::kReduce, CollectivePhase::kCollect}) {
    if (!has_phase(collective.kind, phase)) continue;
    for (int member = 0; member < group.size(); ++member) {
      if (member != group.index) bytes += leaving(group, collective, phase, member).bytes;
    }
  }
  TrafficCount& entry = collectives[{collective.kind, group.axis}];
  ++entry.messages;
  entry.bytes += bytes;
}

TrafficCount SentTraffic::of(CollectiveKind kind, Axis axis) const {
  const auto found = collectives.find({kind, axis});
  return found == collectives.end() ? TrafficCount{} : found->second;
}

std::uint64_t SentTraffic::bytes_of(Axis axis) const {
  std::uint64_t sum = axis == Axis::kPipeline ? point_to_point.bytes : 0;
  for (const auto& [key, count] : collectives) sum += key.second == axis ? count.bytes : 0;
  return sum;
}

SentTraffic operator-(const SentTraffic& later, const SentTraffic& earlier) {
  SentTraffic difference = later;
  difference.point_to_point.messages -= earlier.point_to_point.messages;
  difference.point_to_point.bytes -= earlier.point_to_point.bytes;
  for (const auto& [key, count] : earlier.collectives) {
    difference.collectives[key].messages -= count.messages;
    difference.collectives[key].bytes -= count.bytes;
  }
  return difference;
}

std::size_t size_of(Element element) {
  switch (element) {
    case Element::kFloat32:
      return sizeof(float);
    case Element::kFloat64:
      return sizeof(double);
    case Element::kByte:
      break;
  }
  return 1;
}

std::string to_string(const MessageKey& key) {
  return fmt::format("the {} of microbatch {} for stage {}", key.activation ? "activation" : "gradient", key.microbatch,
                     key.stage);
}

Part part_of(std::size_t count, int index, int parts) {
  const auto place = static_cast<std::size_t>(index);
  const auto total = static_cast<std::size_t>(parts);
  const std::size_t first = count * place / total;
  return {first, count * (place + 1) / total - first};
}

namespace {

template <class T>
void reduce_as(const std::vector<const std::byte*>& inputs, std::size_t count, Reduction reduction, std::byte* output) {
  T* result = reinterpret_cast<T*>(output);
  const bool sums = reduction == Reduction::kSum;
  // Element by element, so that the result may overwrite an input.
  for (std::size_t index = 0; index < count; ++index) {
    T value = reinterpret_cast<const T*>(inputs.front())[index];
    for (std::size_t input = 1; input < inputs.size(); ++input) {
      const T next = reinterpret_cast<const T*>(inputs[input])[index];
      value = sums ? value + next : std::max(value, next);
    }
    result[index] = value;
  }
}

}  // namespace

void reduce_in_order(const std::vector<const std::byte*>& inputs, std::size_t count, Element element,
                     Reduction reduction, std::byte* output) {
  switch (element) {
    case Element::kFloat32:
      return reduce_as<float>(inputs, count, reduction, output);
    case Element::kFloat64:
      return reduce_as<double>(inputs, count, reduction, output);
    case Element::kByte:
      break;
  }
  FLOPCAST_CHECK(false && "bytes cannot be summed");
}

namespace {

class PastMoment : public Moment {
 public:
  bool reached() override { return true; }
  Ticks time() override { return time_; }

 private:
  Ticks time_ = host_clock();
};

class HostQueues : public Queues {
 public:
  Queue add_queue() override { return Queue::kCompute; }
  Buffer reserve_word() override { return allocate_host(sizeof(float)); }
  std::shared_ptr<Moment> record(Queue /*queue*/) override { return std::make_shared<PastMoment>(); }
  void wait(Queue /*queue*/, const std::shared_ptr<Moment>& /*moment*/) override {}
  void copy(Queue /*queue*/, const Buffer& from, const Buffer& to) override {
    FLOPCAST_CHECK(from.bytes() == to.bytes());
    copy_bytes(to.address(), from.address(), from.bytes());
  }
  void reduce(Queue /*queue*/, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
              const Buffer& output) override {
    std::vector<const std::byte*> addresses;
    for (const Buffer& input : inputs) addresses.push_back(input.address());
    reduce_in_order(addresses, output.bytes() / size_of(element), element, reduction, output.address());
  }
};

}  // namespace

Queues& host_queues() {
  static HostQueues queues;
  return queues;
}

}  // namespace flopcast::realrun
