#include "realrun/training/train.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

// Each type is described once, by a function that both directions go through.
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
    if (bytes_.size() - place_ < sizeof(item)) throw EnvironmentError("the result of a rank has arrived in part only");
    std::memcpy(&item, bytes_.data() + place_, sizeof(item));
    place_ += sizeof(item);
  }
  template <class List>
  void size(List& list) {
    std::uint64_t count = 0;
    value(count);
    if (count > bytes_.size() - place_) throw EnvironmentError("the result of a rank has arrived in part only");
    list.resize(count);
  }

 private:
  const std::vector<std::byte>& bytes_;
  std::size_t place_ = 0;
};

template <class Stream, class List>
void plain_list(Stream& stream, List& list) {
  stream.size(list);
  for (auto& item : list) stream.value(item);
}

// The bindings name every member, so that one added later does not compile until it is passed too.
template <class Stream>
void pass(Stream& stream, TransferEnd& end) {
  auto& [key, produced_by, peer, at] = end;
  stream.value(key);
  stream.value(produced_by);
  stream.value(peer);
  stream.value(at);
}

struct CollectiveCount {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Axis axis = Axis::kData;
  TrafficCount count;
};

template <class Stream>
void pass(Stream& stream, SentTraffic& traffic) {
  auto& [point_to_point, collectives] = traffic;
  stream.value(point_to_point);
  std::vector<CollectiveCount> counts;
  for (const auto& [key, count] : collectives) counts.push_back({key.first, key.second, count});
  plain_list(stream, counts);
  for (const CollectiveCount& entry : counts) collectives[{entry.kind, entry.axis}] = entry.count;
}

template <class Stream>
void pass(Stream& stream, RankRecord& record) {
  auto& [spans, sent, received] = record;
  plain_list(stream, spans);
  for (std::vector<TransferEnd>* ends : {&sent, &received}) {
    stream.size(*ends);
    for (TransferEnd& end : *ends) pass(stream, end);
  }
}

template <class Stream>
void pass(Stream& stream, StepRecord& step) {
  auto& [record, losses, traffic, host_bytes, wall_seconds, cpu_seconds] = step;
  pass(stream, record);
  plain_list(stream, losses);
  pass(stream, traffic);
  stream.value(host_bytes);
  stream.value(wall_seconds);
  stream.value(cpu_seconds);
}

template <class Stream>
void pass(Stream& stream, MessageTimes& messages) {
  auto& [key, bytes, one_way, receive] = messages;
  stream.value(key);
  stream.value(bytes);
  plain_list(stream, one_way);
  plain_list(stream, receive);
}

template <class Stream>
void pass(Stream& stream, RankCalibration& calibration) {
  auto& [steps, later_steps, messages] = calibration;
  for (std::vector<StepRecord>* either : {&steps, &later_steps}) {
    stream.size(*either);
    for (StepRecord& step : *either) pass(stream, step);
  }
  stream.size(messages);
  for (MessageTimes& boundary : messages) pass(stream, boundary);
}

template <class Stream>
void pass(Stream& stream, Parameter& parameter) {
  auto& [name, shard, value, deviation, partial, multiplies, of_experts, frozen, offset] = parameter;
  plain_list(stream, name);
  stream.value(shard);
  stream.value(value);
  stream.value(deviation);
  stream.value(partial);
  stream.value(multiplies);
  stream.value(of_experts);
  stream.value(frozen);
  stream.value(offset);
}

template <class Stream>
void pass(Stream& stream, RankResult& result) {
  auto& [rank, pipeline_rank, data_index, tensor_index, calibration, steps, weights, peak_activation_bytes] = result;
  for (int* place : {&rank, &pipeline_rank, &data_index, &tensor_index}) stream.value(*place);
  pass(stream, calibration);
  stream.size(steps);
  for (StepRecord& step : steps) pass(stream, step);
  stream.size(weights);
  for (auto& [parameter, values] : weights) {
    pass(stream, parameter);
    plain_list(stream, values);
  }
  stream.value(peak_activation_bytes);
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
