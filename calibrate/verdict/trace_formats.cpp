#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "sim/files/run_file.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

constexpr double kMicroseconds = 1e-6;

// Enum values of et_def.proto.
enum ChakraType : std::uint64_t {
  kLoad = 2,
  kStore = 3,
  kComputation = 4,
  kSending = 5,
  kReceiving = 6,
  kGroup = 7,
  kBatch = 9
};
constexpr std::array<const char*, 10> kChakraCollectives = {
    "all_reduce", "reduce",     "all_gather",     "gather",         "scatter",
    "broadcast",  "all_to_all", "reduce_scatter", "reduce_scatter", "barrier"};

[[noreturn]] void refuse_chakra(const std::string& file, std::uint64_t byte, const std::string& problem) {
  throw ConfigError({"", problem, fmt::format("{}, byte {}", file, byte),
                     "expected a Chakra execution trace: protobuf messages, each preceded by its length"});
}

// Reads the fields of one protobuf message.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const std::string& file, std::uint64_t at)
      : bytes_(bytes), file_(file), at_(at) {}

  struct Field {
    int number = 0;
    std::uint64_t value = 0;
    std::string_view bytes = {};
  };

  /// The next field, its number and its content as a number or as bytes; absent at the end.
  std::optional<Field> next() {
    if (place_ == bytes_.size()) return std::nullopt;
    const std::uint64_t key = varint();
    constexpr std::uint64_t kMostFields = 1U << 29U;
    if (key >> 3U == 0 || key >> 3U >= kMostFields) fail("a field with an invalid number");
    const int number = static_cast<int>(key >> 3U);
    switch (key & 7U) {
      case 0:
        return Field{number, varint()};
      case 1:
        return Field{number, 0, take(8)};
      case 2:
        return Field{number, 0, take(varint())};
      case 5:
        return Field{number, 0, take(4)};
      default:
        fail("a field of an unknown type");
    }
  }

  /// All remaining values as numbers.
  std::vector<std::uint64_t> numbers() {
    std::vector<std::uint64_t> all;
    while (place_ < bytes_.size()) all.push_back(varint());
    return all;
  }

  MessageReader inside(std::string_view bytes) const { return {bytes, file_, at_}; }

 private:
  [[noreturn]] void fail(const std::string& problem) const { refuse_chakra(file_, at_, "contains " + problem); }

  std::uint64_t varint() {
    constexpr unsigned kBits = 64;
    constexpr unsigned kPart = 7;
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < kBits; shift += kPart) {
      if (place_ == bytes_.size()) fail("a truncated number");
      const auto byte = static_cast<unsigned char>(bytes_[place_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    fail("a number of more than 64 bits");
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - place_) fail("a truncated field");
    const std::string_view taken = bytes_.substr(place_, size);
    place_ += size;
    return taken;
  }

  std::string_view bytes_;
  const std::string& file_;
  std::uint64_t at_ = 0;  // position of the message in the file
  std::size_t place_ = 0;
};

// Limits on the memory that a file may occupy.
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20U;
constexpr std::size_t kMostNodes = std::size_t{1} << 22U;
constexpr std::size_t kMostEdges = std::size_t{1} << 24U;
constexpr std::size_t kLongestName = 256;

struct ChakraNode {
  std::uint64_t id = 0;
  std::uint64_t type = 0;
  std::uint64_t start = 0;
  std::uint64_t duration = 0;
  std::uint64_t collective = kChakraCollectives.size();
  bool on_host = false;
  std::string name;
  std::vector<std::uint64_t> waits_for;

  bool communicates() const { return type == kSending || type == kReceiving || type == kGroup; }
  bool on_device() const {
    return !on_host && (communicates() || type == kLoad || type == kStore || type == kComputation);
  }
};

void read_attribute(MessageReader message, ChakraNode& node) {
  std::string_view name;
  std::uint64_t value = 0;
  constexpr int kSigned[] = {15, 17};  // sint32, sint64: zigzag
  while (const auto field = message.next()) {
    if (field->number == 1) {
      name = field->bytes;
    } else {
      const bool zigzag = field->number == kSigned[0] || field->number == kSigned[1];
      value = zigzag ? field->value >> 1U : field->value;
    }
  }
  if (name == "is_cpu_op") node.on_host = value != 0;
  if (name == "comm_type") node.collective = value;
}

ChakraNode read_node(MessageReader message) {
  ChakraNode node;
  while (const auto field = message.next()) {
    const auto [number, value, bytes] = *field;
    if (number == 1) node.id = value;
    if (number == 2) node.name = bytes.substr(0, kLongestName);
    if (number == 3) node.type = value;
    if (number == 6) node.start = value;
    if (number == 7) node.duration = value;
    if (number == 10) read_attribute(message.inside(bytes), node);
    if (number != 4 && number != 5) continue;
    if (bytes.data() == nullptr) {
      node.waits_for.push_back(value);
    } else {
      const std::vector<std::uint64_t> packed = message.inside(bytes).numbers();
      node.waits_for.insert(node.waits_for.end(), packed.begin(), packed.end());
    }
  }
  return node;
}

// Reads one message preceded by its length; false at the end of the file.
bool read_message(std::istream& stream, const std::string& file, std::uint64_t& at, std::string& bytes) {
  constexpr std::uint64_t kLongest = std::uint64_t{16} << 20U;
  constexpr unsigned kPart = 7;
  constexpr unsigned kMostBits = 35;
  std::uint64_t size = 0;
  for (unsigned shift = 0;; shift += kPart) {
    const int byte = stream.get();
    if (byte == std::istream::traits_type::eof()) {
      if (shift == 0) return false;
      refuse_chakra(file, at, "ends inside a length");
    }
    ++at;
    size |= (static_cast<std::uint64_t>(byte) & 0x7fU) << shift;
    if ((byte & 0x80) == 0) break;
    if (shift == kMostBits) refuse_chakra(file, at, "is not a length");
  }
  if (size > kLongest) refuse_chakra(file, at, fmt::format("a message of {} bytes is longer than 16 MiB", size));
  bytes.resize(size);
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  if (stream.gcount() != static_cast<std::streamsize>(size)) refuse_chakra(file, at, "ends inside a message");
  at += size;
  if (at > kMostBytes) refuse_at(file, "contains more than 256 MiB", "trace fewer steps");
  return true;
}

// The converters of MLCommons write attributes but no version.
bool is_metadata(MessageReader message) {
  const auto field = message.next();
  if (!field || field->bytes.empty()) return false;
  if (field->number != 2) return field->number == 1;
  const auto attribute = message.inside(field->bytes).next();
  return attribute && attribute->number == 1 && !attribute->bytes.empty();
}

std::vector<ChakraNode> read_nodes(std::istream& stream, const std::string& file) {
  stream.exceptions(std::ios::badbit);  // lets a ConfigError pass through
  std::uint64_t at = 0;
  std::string bytes;
  const auto reader = [&] { return MessageReader(bytes, file, at - bytes.size()); };
  if (!read_message(stream, file, at, bytes)) refuse_chakra(file, 0, "is empty");
  if (!is_metadata(reader())) refuse_chakra(file, 0, "does not begin with the version or attributes of its schema");
  std::vector<ChakraNode> nodes;
  std::size_t edges = 0;
  while (read_message(stream, file, at, bytes)) {
    if (bytes.empty()) refuse_chakra(file, at, "an empty message is not a node");
    nodes.push_back(read_node(reader()));
    edges += nodes.back().waits_for.size();
    if (nodes.size() > kMostNodes || edges > kMostEdges) {
      refuse_at(file, fmt::format("contains more than {} nodes or {} dependencies", kMostNodes, kMostEdges),
                "trace fewer steps");
    }
  }
  return nodes;
}

// Starts every node when its dependencies have ended; dependencies that are not in the file are ignored.
void begin_by_dependencies(std::vector<ChakraNode>& nodes, const std::string& file) {
  std::map<std::uint64_t, std::size_t> places;
  for (std::size_t place = 0; place < nodes.size(); ++place) places[nodes[place].id] = place;
  std::vector<std::vector<std::size_t>> followers(nodes.size());
  std::vector<std::size_t> left(nodes.size(), 0);
  for (std::size_t place = 0; place < nodes.size(); ++place) {
    for (const std::uint64_t id : nodes[place].waits_for) {
      const auto found = places.find(id);
      if (found == places.end()) continue;
      followers[found->second].push_back(place);
      ++left[place];
    }
  }
  std::vector<std::size_t> ready;
  for (std::size_t place = 0; place < nodes.size(); ++place) {
    if (left[place] == 0) ready.push_back(place);
  }
  for (std::size_t next = 0; next < ready.size(); ++next) {
    const ChakraNode& done = nodes[ready[next]];
    for (const std::size_t follower : followers[ready[next]]) {
      nodes[follower].start = std::max(nodes[follower].start, done.start + done.duration);
      if (--left[follower] == 0) ready.push_back(follower);
    }
  }
  if (ready.size() < nodes.size()) refuse_at(file, "has a dependency cycle", "");
}

bool drop_ending(std::string& name, std::string_view ending) {
  if (name.size() < ending.size() || name.compare(name.size() - ending.size(), ending.size(), ending) != 0)
    return false;
  name.resize(name.size() - ending.size());
  return true;
}

// "llama.3.et" or "llama.3.et.gz" -> 3.
std::optional<int> rank_of_name(const std::string& file) {
  std::string stem = file;
  drop_ending(stem, ".gz");
  if (!drop_ending(stem, ".et")) return std::nullopt;
  const std::size_t dot = stem.rfind('.');
  constexpr std::size_t kMostDigits = 7;
  if (dot == std::string::npos || stem.size() - dot - 1 > kMostDigits) return std::nullopt;
  const std::optional<std::int64_t> rank = parse_whole(stem.substr(dot + 1));
  return rank && *rank >= 0 ? std::optional(static_cast<int>(*rank)) : std::nullopt;
}

// Makes starts relative to the first one: converters count microseconds since 1970, and nodes without a start begin
// with the first.
void count_from_first(std::vector<ChakraNode>& nodes, const std::string& file) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 50U;  // in microseconds; an upper bound for any sum in a file
  constexpr std::uint64_t kLatest = std::uint64_t{1} << 62U;
  std::uint64_t first = kLatest;
  bool since_then = false;
  for (const ChakraNode& node : nodes) {
    if (node.duration == 0) continue;
    since_then = since_then || node.start > kLongest;
    first = std::min(first, node.start);
  }
  if (since_then && first == 0) {
    first = kLatest;
    for (const ChakraNode& node : nodes) {
      if (node.duration > 0 && node.start > 0) first = std::min(first, node.start);
    }
  }
  for (ChakraNode& node : nodes) {
    const bool late = node.start > kLatest;
    node.start -= std::min(node.start, first);
    if (late || node.start > kLongest || node.duration > kLongest / (nodes.size() + 1)) {
      refuse_at(file, fmt::format("node {} has an implausible start or duration", node.id), "");
    }
  }
}

}  // namespace

TracedRank read_chakra_steps(std::istream& stream, const std::string& file, double step_s) {
  std::vector<ChakraNode> nodes = read_nodes(stream, file);
  const bool tells_starts = std::any_of(nodes.begin(), nodes.end(),
                                        [](const ChakraNode& node) { return node.on_device() && node.start > 0; });
  count_from_first(nodes, file);
  if (!tells_starts) begin_by_dependencies(nodes, file);
  TracedEvents events;
  events.rank.file = file;
  events.rank.rank = rank_of_name(file);
  for (const ChakraNode& node : nodes) {
    if (node.duration == 0) continue;
    const TracedSpan span = {static_cast<double>(node.start) * kMicroseconds,
                             static_cast<double>(node.start + node.duration) * kMicroseconds};
    if (node.on_device() && node.communicates()) {
      TracedKernel kernel{.span = span, .work = TraceWork::kCommunication};
      const bool known = node.collective < kChakraCollectives.size();
      kernel.collective = node.type != kGroup ? "p2p" : known ? kChakraCollectives[node.collective] : "other";
      events.kernels.push_back(std::move(kernel));
    } else if (node.on_device()) {
      events.add_kernel(node.name, node.type != kComputation, span, std::nullopt, "", 0);
    } else if (node.type == kBatch) {
      events.data.push_back(span);
    } else {
      events.add_host(node.name, span);
    }
  }
  if (events.kernels.empty()) {
    refuse_at(file, "contains no device node with a duration",
              "expected a measured trace or one by flopcast; converters of PyTorch traces keep duration_micros");
  }
  return cut_into_steps(std::move(events), step_s);
}

namespace {

bool computes(SpanKind kind) {
  return is_action(kind) || kind == SpanKind::kOptimizer;
}

// Identifies what an action receives from another rank: rank, stage, microbatch, and true for an activation.
using Delivery = std::tuple<std::uint32_t, std::uint16_t, std::uint32_t, bool>;

std::map<Delivery, const Transfer*> deliveries_of(const Timeline& timeline) {
  std::map<Delivery, const Transfer*> deliveries;
  for (const Transfer& transfer : timeline.transfers) {
    deliveries[{transfer.to_rank, transfer.to_stage, transfer.produced_by.microbatch,
                transfer.produced_by.kind == ActionKind::kForward}] = &transfer;
  }
  return deliveries;
}

// Adds one rank's spans of a step that begins at `origin_s`.
void add_spans(const Timeline& timeline, std::uint32_t rank, const std::map<Delivery, const Transfer*>& deliveries,
               double origin_s, TracedEvents& events) {
  const auto seconds = [&](Ticks time) { return origin_s + static_cast<double>(time) * timeline.units_per_tick; };
  Ticks busy_until = 0;
  for (const Span& span : timeline.ranks[rank]) {
    // The host is not late for a span that waits for other ranks.
    Ticks host_comes = 0;
    if (is_action(span.kind) && span.start > busy_until) {
      host_comes = busy_until;
      const bool forward = span.kind == SpanKind::kForward;
      const auto found = span.kind == SpanKind::kWeightGradient
                             ? deliveries.end()
                             : deliveries.find({rank, span.action.stage, span.action.microbatch, forward});
      if (found != deliveries.end()) {
        const Ticks sent = std::max(busy_until, found->second->start);
        const Ticks came = std::min(span.start, found->second->end);
        if (came > sent) {
          TracedKernel message{.span = {seconds(sent), seconds(came)}, .work = TraceWork::kCommunication};
          message.collective = forward ? "activation" : "gradient";
          message.launch = -1;  // the host is never late for a message
          events.kernels.push_back(std::move(message));
        }
        host_comes = std::max(host_comes, came);
      }
    }
    TracedKernel kernel{.span = {seconds(span.start), seconds(span.end)}, .work = TraceWork::kOther};
    kernel.passes_forward = span.kind == SpanKind::kForward;
    if (!computes(span.kind)) {
      kernel.work = TraceWork::kCommunication;
      kernel.collective = name_of(span.kind);
    }
    kernel.launch = static_cast<std::int64_t>(events.launches.size());
    // A launch that begins no earlier than the gap makes the gap the host's.
    const bool late = is_action(span.kind) && host_comes > 0 && host_comes < span.start;
    events.launches.emplace(*kernel.launch, late ? seconds(span.start) : -1.0);
    events.kernels.push_back(std::move(kernel));
    busy_until = std::max(busy_until, span.end);
  }
}

}  // namespace

std::vector<TracedRank> traced_run(const std::vector<Timeline>& steps, const std::string& file, double step_s) {
  std::vector<TracedRank> ranks;
  if (steps.empty()) refuse_at(file, "contains no steps", "");
  std::vector<std::map<Delivery, const Transfer*>> deliveries;
  deliveries.reserve(steps.size());
  for (const Timeline& step : steps) deliveries.push_back(deliveries_of(step));
  for (std::uint32_t rank = 0; rank < steps.front().ranks.size(); ++rank) {
    TracedEvents events;
    events.rank.file = file;
    events.rank.rank = static_cast<int>(rank);
    events.rank.waiting_separate = true;
    events.launches.emplace(-1, -1.0);
    double origin_s = 0.0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const Timeline& timeline = steps[step];
      if (timeline.ranks.size() != steps.front().ranks.size())
        refuse_at(file, "has steps with different numbers of ranks", "");
      add_spans(timeline, rank, deliveries[step], origin_s, events);
      const double end_s = origin_s + static_cast<double>(timeline.makespan()) * timeline.units_per_tick;
      // A single step may in fact be many: an asynchronous run has no step boundaries.
      constexpr double kMany = 1.5;
      if (steps.size() > 1 || step_s <= 0.0 || end_s < kMany * step_s)
        events.marks.emplace_back(fmt::format("step {}", step), TracedSpan{origin_s, end_s});
      origin_s = end_s;
    }
    if (events.kernels.empty()) refuse_at(file, fmt::format("has no spans of rank {}", rank), "");
    ranks.push_back(cut_into_steps(std::move(events), step_s));
  }
  return ranks;
}

std::vector<TracedRank> read_user_run(const std::string& text, const std::string& file, double step_s) {
  MeasuredRun run = read_measured_run(text, file);
  const ScheduleInfo* schedule = find_schedule(run.schedule);
  if (step_s <= 0.0 && schedule != nullptr && schedule->asynchronous) {
    refuse_at(file, fmt::format("{} never flushes, so its steps have no boundaries", run.schedule),
              "pass --measured TIME with the step time that flopcast run printed");
  }
  const auto warm_ups = std::min<std::size_t>(static_cast<std::size_t>(std::max(run.warmup, 0)),
                                              run.steps.empty() ? 0 : run.steps.size() - 1);
  run.steps.erase(run.steps.begin(), run.steps.begin() + static_cast<std::ptrdiff_t>(warm_ups));
  return traced_run(run.steps, file, step_s);
}

namespace {

std::optional<SpanKind> span_kind_named(const std::string& name) {
  for (std::size_t index = 0; index < kSpanKindCount; ++index) {
    if (name == name_of(static_cast<SpanKind>(index))) return static_cast<SpanKind>(index);
  }
  return std::nullopt;
}

// A number that the writer includes in every event.
double required(const nlohmann::json& event, const char* key, double most, const std::string& place) {
  const auto number = trace_number(event, key);
  if (!number || *number < 0.0 || *number > most) {
    refuse_at(place, fmt::format("\"{}\" is not a number from 0 to {:g}", key, most), "expected a trace by flopcast");
  }
  return *number;
}

class OwnTraceReader {
 public:
  OwnTraceReader() {
    timeline_.time_unit = "s";
    timeline_.units_per_tick = kSecondsPerTick;
  }

  void take(const nlohmann::json& event, const std::string& place) {
    const std::string phase = trace_text(event, "ph");
    if (phase == "X") {
      if (const auto kind = span_kind_named(trace_text(event, "cat"))) take_span(event, *kind, place);
    } else if ((phase == "s" || phase == "f") && trace_text(event, "cat") == "p2p") {
      const double id = required(event, "id", kMostRanks * kMostRanks, place);
      (phase == "s" ? departures_ : arrivals_)[id] = {rank_of(event, place), ticks_of(event, "ts", place)};
    }
  }

  Timeline finished(const std::string& file) {
    if (timeline_.ranks.empty()) refuse_at(file, "contains no spans of a rank", "");
    for (std::vector<Span>& spans : timeline_.ranks) {
      std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
    }
    for (const auto& [id, arrival] : arrivals_) {
      const auto departure = departures_.find(id);
      if (departure != departures_.end()) bind(departure->second, arrival);
    }
    return std::move(timeline_);
  }

 private:
  static constexpr double kMostRanks = 1e6;
  struct End {
    std::uint32_t rank = 0;
    Ticks at = 0;
  };

  static std::uint32_t rank_of(const nlohmann::json& event, const std::string& place) {
    return static_cast<std::uint32_t>(required(event, "pid", kMostRanks, place));
  }
  static Ticks ticks_of(const nlohmann::json& event, const char* key, const std::string& place) {
    constexpr double kMostMicroseconds = 4e12;  // leaves room for the sum of a start and a duration
    constexpr double kTicks = 1e6;
    return std::llround(required(event, key, kMostMicroseconds, place) * kTicks);
  }

  void take_span(const nlohmann::json& event, SpanKind kind, const std::string& place) {
    Span span;
    span.kind = kind;
    span.start = ticks_of(event, "ts", place);
    span.end = span.start + ticks_of(event, "dur", place);
    if (const nlohmann::json* about = trace_member(event, "args"); about != nullptr && is_action(kind)) {
      constexpr double kMostStages = 65'535;
      constexpr double kMostMicrobatches = 1e6;
      constexpr std::uint32_t kMostSlices = 4096;
      span.action.stage = static_cast<std::uint16_t>(required(*about, "stage", kMostStages, place));
      span.action.microbatch =
          static_cast<std::uint32_t>(required(*about, "microbatch", kMostMicrobatches, place)) * kMostSlices;
      if (trace_member(*about, "slice") != nullptr) {
        span.action.microbatch += static_cast<std::uint32_t>(required(*about, "slice", kMostSlices - 1, place));
      }
    }
    const std::uint32_t rank = rank_of(event, place);
    if (timeline_.ranks.size() <= rank) timeline_.ranks.resize(rank + 1);
    timeline_.ranks[rank].push_back(span);
  }

  // A flow event ends at the start of the action that waits for the transfer.
  void bind(const End& departure, const End& arrival) {
    if (arrival.rank >= timeline_.ranks.size()) return;
    const std::vector<Span>& spans = timeline_.ranks[arrival.rank];
    auto span = std::lower_bound(spans.begin(), spans.end(), arrival.at,
                                 [](const Span& one, Ticks time) { return one.start < time; });
    while (span != spans.end() && span->start == arrival.at && !is_action(span->kind)) ++span;
    if (span == spans.end() || span->start != arrival.at) return;
    Transfer transfer{.start = departure.at, .end = arrival.at, .produced_by = span->action};
    transfer.produced_by.kind = span->kind == SpanKind::kForward ? ActionKind::kForward : ActionKind::kBackward;
    transfer.to_stage = span->action.stage;
    transfer.from_rank = departure.rank;
    transfer.to_rank = arrival.rank;
    timeline_.transfers.push_back(transfer);
  }

  Timeline timeline_;
  std::map<double, End> departures_;
  std::map<double, End> arrivals_;
};

}  // namespace

std::vector<TracedRank> read_own_trace(std::istream& stream, const std::string& file, double step_s) {
  OwnTraceReader reader;
  read_trace_events(
      stream, file,
      {[&reader](const nlohmann::json& event, const std::string& place) { reader.take(event, place); }, {}});
  return traced_run({reader.finished(file)}, file, step_s);
}

}  // namespace flopcast
