#include "realrun/training/train.hpp"

#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

// Both directions share one description of each type.
class Writer {
 public:
  template <class T>
  void value(T& item) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* first = reinterpret_cast<const std::byte*>(&item);
    bytes.insert(bytes.end(), first, first + sizeof(item));
  }
  template <class List>
  void size(List& list) {
    std::uint64_t count = list.size();
    value(count);
  }
  std::vector<std::byte> bytes;
};

class Reader {
 public:
  explicit Reader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  template <class T>
  void value(T& item) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() - place_ < sizeof(item)) throw EnvironmentError("the result of a rank is incomplete");
    std::memcpy(&item, bytes_.data() + place_, sizeof(item));
    place_ += sizeof(item);
  }
  template <class List>
  void size(List& list) {
    std::uint64_t count = 0;
    value(count);
    if (count > bytes_.size() - place_) throw EnvironmentError("the result of a rank is incomplete");
    list.resize(count);
  }

 private:
  const std::vector<std::byte>& bytes_;
  std::size_t place_ = 0;
};

// The bindings name every member, so that a new member does not compile until it is added here.
auto members(RankRecord& record) {
  auto& [spans, sent, received] = record;
  return std::tie(spans, sent, received);
}
auto members(StepRecord& step) {
  auto& [record, losses, traffic, host_bytes, wall_seconds, cpu_seconds] = step;
  return std::tie(record, losses, traffic, host_bytes, wall_seconds, cpu_seconds);
}
auto members(MessageTimes& messages) {
  auto& [key, bytes, one_way, receive] = messages;
  return std::tie(key, bytes, one_way, receive);
}
auto members(RankCalibration& calibration) {
  auto& [steps, later_steps, messages] = calibration;
  return std::tie(steps, later_steps, messages);
}
auto members(Parameter& parameter) {
  auto& [name, shard, value, deviation, partial, multiplies, of_experts, frozen, offset] = parameter;
  return std::tie(name, shard, value, deviation, partial, multiplies, of_experts, frozen, offset);
}
auto members(TrainedParameter& trained) {
  auto& [parameter, values] = trained;
  return std::tie(parameter, values);
}
auto members(RankResult& result) {
  auto& [rank, pipeline_rank, data_index, tensor_index, calibration, steps, weights, peak_activation_bytes] = result;
  return std::tie(rank, pipeline_rank, data_index, tensor_index, calibration, steps, weights, peak_activation_bytes);
}

struct CollectiveCount {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Axis axis = Axis::kData;
  TrafficCount count;
};

// Numbers and structs of numbers as stored in memory, lists element by element, other types member by member.
template <class Stream, class T>
void pass(Stream& stream, T& item) {
  if constexpr (std::is_same_v<T, SentTraffic>) {
    auto& [point_to_point, collectives] = item;
    stream.value(point_to_point);
    std::vector<CollectiveCount> counts;
    for (const auto& [key, count] : collectives) counts.push_back({key.first, key.second, count});
    pass(stream, counts);
    for (const CollectiveCount& entry : counts) collectives[{entry.kind, entry.axis}] = entry.count;
  } else if constexpr (requires { item.resize(1); }) {
    stream.size(item);
    for (auto& element : item) pass(stream, element);
  } else if constexpr (std::is_trivially_copyable_v<T>) {
    stream.value(item);
  } else {
    std::apply([&stream](auto&... parts) { (pass(stream, parts), ...); }, members(item));
  }
}

}  // namespace

std::vector<std::byte> to_bytes(const RankResult& result) {
  RankResult copy = result;
  Writer writer;
  pass(writer, copy);
  return std::move(writer.bytes);
}

RankResult result_from_bytes(const std::vector<std::byte>& bytes) {
  RankResult result;
  Reader reader(bytes);
  pass(reader, result);
  return result;
}

}  // namespace flopcast::realrun
