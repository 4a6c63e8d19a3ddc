#include "realrun/training/result_bytes.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "model/error/error.hpp"

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

template <class Stream>
void pass(Stream& stream, TransferEnd& end) {
  stream.value(end.key);
  stream.value(end.produced_by);
  stream.value(end.peer);
  stream.value(end.at);
}

struct CollectiveCount {
  CollectiveKind kind;
  Axis axis;
  TrafficCount count;
};

template <class Stream>
void pass(Stream& stream, Traffic& traffic) {
  stream.value(traffic.point_to_point);
  std::vector<CollectiveCount> counts;
  for (const auto& [key, count] : traffic.collectives) counts.push_back({key.first, key.second, count});
  plain_list(stream, counts);
  for (const CollectiveCount& entry : counts) traffic.collectives[{entry.kind, entry.axis}] = entry.count;
}

template <class Stream>
void pass(Stream& stream, StepRecord& step) {
  plain_list(stream, step.record.spans);
  for (std::vector<TransferEnd>* ends : {&step.record.sent, &step.record.received}) {
    stream.size(*ends);
    for (TransferEnd& end : *ends) pass(stream, end);
  }
  stream.value(step.loss_sum);
  stream.value(step.losses);
  pass(stream, step.traffic);
  stream.value(step.wall_seconds);
  stream.value(step.cpu_seconds);
}

template <class Stream>
void pass(Stream& stream, TrainedParameter& trained) {
  plain_list(stream, trained.parameter.name);
  stream.value(trained.parameter.shard);
  stream.value(trained.parameter.offset);
  stream.value(trained.parameter.partial);
  plain_list(stream, trained.values);
}

template <class Stream>
void pass(Stream& stream, RankResult& result) {
  stream.value(result.rank);
  stream.value(result.pipeline_rank);
  stream.value(result.data_index);
  stream.value(result.tensor_index);
  stream.size(result.steps);
  for (StepRecord& step : result.steps) pass(stream, step);
  stream.size(result.weights);
  for (TrainedParameter& trained : result.weights) pass(stream, trained);
  stream.value(result.peak_activation_bytes);
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
