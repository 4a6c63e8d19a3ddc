#include "reports/timeline/writers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "base/text/error.hpp"
#include "model/layout/rank_grid.hpp"
#include "sim/program/needs.hpp"

namespace flopcast {

namespace {

// A protobuf message: each field is a varint of number and wire type, then the value.
class ProtobufMessage {
 public:
  void add_number(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
  }
  void add_text(int field, std::string_view text) {
    varint((static_cast<std::uint64_t>(field) << 3) | 2);
    varint(text.size());
    bytes_ += text;
  }
  void add_numbers(int field, const std::vector<std::uint64_t>& values) {
    if (values.empty()) return;
    ProtobufMessage packed;
    for (const std::uint64_t value : values) packed.varint(value);
    add_text(field, packed.bytes_);
  }
  const std::string& bytes() const { return bytes_; }
  // The message prefixed with its length, as in a stream of messages.
  std::string length_prefixed() const {
    ProtobufMessage length;
    length.varint(bytes_.size());
    return length.bytes_ + bytes_;
  }

 private:
  void varint(std::uint64_t value) {
    constexpr std::uint64_t kMore = 128;
    for (; value >= kMore; value /= kMore) bytes_ += static_cast<char>(value % kMore + kMore);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Enumerators of et_def.proto.
enum NodeType : std::uint64_t { kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7 };
enum CollectiveType : std::uint64_t {
  kAllReduceType = 0,
  kAllGatherType = 2,
  kAllToAllType = 6,
  kReduceScatterType = 7
};
constexpr int kInt32Value = 7;
constexpr int kInt64Value = 9;
constexpr int kBoolValue = 27;
constexpr int kTextValue = 29;

std::string attribute(std::string_view name, int kind, std::uint64_t value) {
  ProtobufMessage message;
  message.add_text(1, name);
  message.add_number(kind, value);
  return message.bytes();
}

std::string text_attribute(std::string_view name, std::string_view value) {
  ProtobufMessage message;
  message.add_text(1, name);
  message.add_text(kTextValue, value);
  return message.bytes();
}

std::uint64_t whole(double value) {
  return static_cast<std::uint64_t>(std::llround(std::max(0.0, value)));
}

// The groups of devices that do collectives together. Replicas span dp and cp.
class ChakraGrid {
 public:
  explicit ChakraGrid(const Layout& layout) : layout_(layout), grid_(layout) {}

  const RankGrid& grid() const { return grid_; }

  std::vector<int> members(int rank, Axis axis) const {
    if (axis == Axis::kTensor || axis == Axis::kContext) return grid_.group_of(rank, axis);
    // Data and expert groups lie in the plane of context and data ranks, context innermost.
    const int origin = grid_.neighbour(grid_.neighbour(rank, Axis::kContext, -grid_.coordinate(rank, Axis::kContext)),
                                       Axis::kData, -grid_.coordinate(rank, Axis::kData));
    const int position = grid_.coordinate(rank, Axis::kContext) + layout_.cp * grid_.coordinate(rank, Axis::kData);
    const int count = axis == Axis::kExpert ? layout_.ep : layout_.replicas();
    const int first = position / count * count;
    std::vector<int> ranks;
    for (int place = first; place < first + count; ++place) {
      ranks.push_back(grid_.neighbour(grid_.neighbour(origin, Axis::kContext, place % layout_.cp), Axis::kData,
                                      place / layout_.cp));
    }
    return ranks;
  }

  // Unique over all devices and axes, and positive.
  int number(int rank, Axis axis) const {
    const std::vector<int> ranks = members(rank, axis);
    return 1 + static_cast<int>(axis) * grid_.ranks() + *std::min_element(ranks.begin(), ranks.end());
  }

 private:
  const Layout& layout_;
  RankGrid grid_;
};

// The nodes of one device, each dependent on the previous one.
class ChakraTrace {
 public:
  ChakraTrace(const Forecast& forecast, int rank)
      : step_(forecast.step),
        layout_(forecast.step.job.layout),
        groups_(layout_),
        needs_(step_.program),
        rank_(rank),
        pipeline_rank_(groups_.grid().coordinate(rank, Axis::kPipeline)) {}

  std::string text() {
    ProtobufMessage metadata;
    metadata.add_text(1, "0.0.4");
    text_ = metadata.length_prefixed();
    for (const Action& action : step_.program.ranks[static_cast<std::size_t>(pipeline_rank_)]) add_action(action);
    add_flush();
    return std::move(text_);
  }

 private:
  struct Sizes {
    Seconds time;  // exposed time
    double bytes = 0.0;
  };

  int device_at(std::uint32_t pipeline_rank) const {
    return groups_.grid().neighbour(rank_, Axis::kPipeline, static_cast<int>(pipeline_rank) - pipeline_rank_);
  }

  // Adds a message across a stage boundary; both ends give it the same tag.
  void add_message(NodeType type, const Action& action, const Needs::Neighbour& other) {
    if (!other || !other.crosses) return;
    const bool forward = action.kind == ActionKind::kForward;
    const std::size_t boundary = std::min<std::size_t>(action.stage, other.stage);
    const auto tag = static_cast<std::uint32_t>((action.microbatch * step_.costs.boundaries.size() + boundary) * 2 +
                                                (forward ? 0 : 1));
    const int partner = device_at(other.rank_of(action.microbatch));
    const bool sends = type == kSend;
    const BoundaryCosts& costs = step_.costs.boundaries[boundary];
    const Seconds takes = forward ? costs.forward : costs.backward;
    add_node(fmt::format("{} {}", sends ? "send" : "receive", to_string(action)), type,
             sends ? 0 : micros(takes.value()),
             {attribute("comm_size", kInt64Value, whole(costs.bytes.value())),
              attribute("comm_src", kInt32Value, static_cast<std::uint64_t>(sends ? rank_ : partner)),
              attribute("comm_dst", kInt32Value, static_cast<std::uint64_t>(sends ? partner : rank_)),
              attribute("comm_tag", kInt32Value, tag)});
  }

  // `sent` is the number of bytes that a rank sends; the rank waits for `seconds`.
  void add_collective(const std::string& name, CollectiveType type, Axis axis, double sent, double seconds) {
    const auto ranks = static_cast<double>(groups_.members(rank_, axis).size());
    if (ranks < 2.0 || sent < 0.5) return;
    // A rank sends 2(n-1)/n of the buffer of an all-reduce, (n-1)/n of that of other collectives.
    const double buffer = sent * ranks / ((ranks - 1.0) * (type == kAllReduceType ? 2.0 : 1.0));
    add_node(name, kCollective, micros(seconds),
             {attribute("comm_type", kInt64Value, type), attribute("comm_size", kInt64Value, whole(buffer)),
              text_attribute("pg_name", fmt::format("{}", groups_.number(rank_, axis)))});
  }

  void add_collectives_of(const std::string& what, Axis axis, double sent, double seconds) {
    const std::string name = fmt::format("{} {}", name_of(axis), what);
    if (axis == Axis::kTensor && layout_.sequence_parallel) {
      add_collective(name + " all-gather", kAllGatherType, axis, sent / 2, seconds / 2);
      add_collective(name + " reduce-scatter", kReduceScatterType, axis, sent / 2, seconds / 2);
    } else if (axis == Axis::kTensor) {
      add_collective(name + " all-reduce", kAllReduceType, axis, sent, seconds);
    } else if (axis == Axis::kExpert ||
               (axis == Axis::kContext && layout_.context_parallel == ContextParallel::kUlysses)) {
      add_collective(name + " all-to-all", kAllToAllType, axis, sent, seconds);
    } else {
      add_collective(name + " all-gather", kAllGatherType, axis, sent, seconds);
    }
  }

  static std::vector<const PassCost*> passes_of(const StageCosts& costs, ActionKind kind) {
    if (kind == ActionKind::kForward) return {&costs.forward};
    if (kind == ActionKind::kInputGradient) return {&costs.recompute, &costs.input_gradient};
    if (kind == ActionKind::kWeightGradient) return {&costs.weight_gradient};
    return {&costs.recompute, &costs.input_gradient, &costs.weight_gradient};
  }

  // Bytes that an action sends along an axis: its share, by time, of what all passes of its stage send for a
  // microbatch.
  double sent_by(const StageCosts& costs, ActionKind kind, Axis axis) const {
    double all = 0.0;
    double own = 0.0;
    for (const PassCost* pass : passes_of(costs, ActionKind::kForward)) all += pass->comm[axis].value();
    for (const PassCost* pass : passes_of(costs, ActionKind::kBackward)) all += pass->comm[axis].value();
    for (const PassCost* pass : passes_of(costs, kind)) own += pass->comm[axis].value();
    const double bytes = costs.sent[axis].sent_per_rank.value() / step_.program.slices_per_microbatch;
    if (all > 0.0) return bytes * own / all;
    // Communication that is fully hidden is split evenly between forward and backward.
    return kind == ActionKind::kWeightGradient ? 0.0 : bytes / 2;
  }

  // Exposed communication of an action along an axis, in seconds.
  double exposed_by(const StageCosts& costs, ActionKind kind, Axis axis) const {
    double seconds = 0.0;
    for (const PassCost* pass : passes_of(costs, kind)) seconds += pass->comm[axis].value();
    if (kind == ActionKind::kBackward && axis == Axis::kTensor) seconds -= costs.tp_hidden.value();
    return seconds / step_.program.slices_per_microbatch;
  }

  void add_action(const Action& action) {
    const StageCosts& costs = step_.costs.stages[action.stage];
    add_message(kReceive, action, needs_.input_of(action));
    double seconds = static_cast<double>(step_.times.stages[action.stage].of(action.kind)) * kSecondsPerTick;
    for (const Axis axis : kAxes) seconds -= exposed_by(costs, action.kind, axis);
    add_computation(to_string(action), seconds);
    for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData}) {
      add_collectives_of(to_string(action), axis, sent_by(costs, action.kind, axis),
                         exposed_by(costs, action.kind, axis));
    }
    add_message(kSend, action, needs_.result_of(action));
  }

  void add_flush() {
    const FlushCosts& flush = step_.costs.ranks[static_cast<std::size_t>(pipeline_rank_)];
    const double sent = flush.dp.sent_per_rank.value();
    const double reduces = flush.gradient_reduction.value();
    const bool sharded = layout_.optimizer_shards() > 1;
    if (sharded) {
      add_collective("gradients reduce-scatter", kReduceScatterType, Axis::kData, sent / 2, reduces);
    } else {
      add_collective("gradients all-reduce", kAllReduceType, Axis::kData, sent, reduces);
    }
    add_computation("optimizer", flush.optimizer.value());
    if (sharded) {
      add_collective("weights all-gather", kAllGatherType, Axis::kData, sent / 2, flush.parameter_gather.value());
    }
  }

  void add_computation(const std::string& name, double seconds) {
    if (seconds > 0.0) add_node(name, kCompute, micros(seconds), {});
  }

  // Rounds up to 1, since a node without duration counts as not measured.
  static std::uint64_t micros(double seconds) {
    constexpr double kMicroseconds = 1e6;
    return seconds > 0.0 ? std::max<std::uint64_t>(1, whole(seconds * kMicroseconds)) : 0;
  }

  void add_node(const std::string& name, NodeType type, std::uint64_t duration,
                const std::vector<std::string>& attributes) {
    ProtobufMessage node;
    node.add_number(1, ++last_);
    node.add_text(2, name);
    node.add_number(3, type);
    // Sends overlap with what follows: no later node depends on them.
    if (last_dependency_ > 0) node.add_numbers(5, {last_dependency_});
    if (duration > 0) node.add_number(7, duration);
    node.add_text(10, attribute("is_cpu_op", kBoolValue, 0));
    for (const std::string& one : attributes) node.add_text(10, one);
    text_ += node.length_prefixed();
    if (type != kSend) last_dependency_ = last_;
  }

  const PreparedStep& step_;
  const Layout& layout_;
  ChakraGrid groups_;
  Needs needs_;
  int rank_;
  int pipeline_rank_;
  std::uint64_t last_ = 0;
  std::uint64_t last_dependency_ = 0;
  std::string text_;
};

void require_chakra_forms(const Forecast& forecast) {
  const Layout& layout = forecast.step.job.layout;
  const auto refuse = [](const char* field, std::string_view value) {
    throw ConfigError({field, fmt::format("{} cannot be expressed in a Chakra trace", value), "",
                       "remove it, or choose another trace format"});
  };
  if (forecast.step.job.cluster.uneven()) refuse("cluster.nodes", "a list of uneven nodes");
  if (forecast.step.program.asynchronous) refuse("layout.schedule", layout.schedule);
  if (layout.tensor_parallel != TensorParallel::k1d) refuse("layout.tensor_parallel", name_of(layout.tensor_parallel));
  if (layout.folds_experts()) refuse("layout.etp", fmt::format("{}", *layout.etp));
  if (!forecast.step.program.replicas_of_stage.empty()) refuse("layout.schedule", layout.schedule);
  const DataParallel form = layout.data_parallel;
  if (form == DataParallel::kPs || form == DataParallel::kByteps || form == DataParallel::kDataParallel) {
    refuse("layout.data_parallel", name_of(form));
  }
}

}  // namespace

std::string chakra_trace(const Forecast& forecast, int rank) {
  require_chakra_forms(forecast);
  const int devices = forecast.step.job.cluster.devices();
  if (rank < 0 || rank >= devices) {
    throw ConfigError({"rank", fmt::format("{} is out of range", rank), "", fmt::format("0 to {}", devices - 1)});
  }
  return ChakraTrace(forecast, rank).text();
}

std::string chakra_groups(const Forecast& forecast) {
  require_chakra_forms(forecast);
  const ChakraGrid groups(forecast.step.job.layout);
  std::map<int, std::vector<int>> members;
  for (int rank = 0; rank < groups.grid().ranks(); ++rank) {
    for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData}) {
      const std::vector<int> ranks = groups.members(rank, axis);
      if (ranks.size() > 1) members.emplace(groups.number(rank, axis), ranks);
    }
  }
  std::string text;
  for (const auto& [number, ranks] : members) {
    text += fmt::format("{}\n  \"{}\": [{}]", text.empty() ? "" : ",", number, fmt::join(ranks, ", "));
  }
  return "{" + text + "\n}\n";
}

std::string chakra_network(const Forecast& forecast) {
  const Cluster& cluster = forecast.step.job.cluster;
  constexpr double kNanoseconds = 1e9;
  const double inside = cluster.intra_bandwidth.value() * cluster.intra_efficiency / kGibibyte;
  const double between =
      cluster.node_network_bandwidth().value() * cluster.nic_efficiency / cluster.devices_per_node / kGibibyte;
  if (cluster.nodes == 1) {
    return fmt::format("topology: [ Switch ]\nnpus_count: [ {} ]\nbandwidth: [ {:.6g} ]\nlatency: [ {:.6g} ]\n",
                       cluster.devices_per_node, inside, cluster.intra_latency.value() * kNanoseconds);
  }
  return fmt::format(
      "topology: [ Switch, Switch ]\nnpus_count: [ {}, {} ]\nbandwidth: [ {:.6g}, {:.6g} ]\nlatency: [ {:.6g}, {:.6g} "
      "]\n",
      cluster.devices_per_node, cluster.nodes, inside, between, cluster.intra_latency.value() * kNanoseconds,
      cluster.inter_latency.value() * kNanoseconds);
}

}  // namespace flopcast
