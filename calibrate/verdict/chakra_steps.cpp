#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/verdict/trace_steps.hpp"

namespace flopcast {

namespace {

constexpr double kMicroseconds = 1e-6;

// Numbers of et_def.proto.
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
                     "expected a Chakra execution trace: messages of protobuf, each behind its length"});
}

// Fields of one message of protobuf.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const std::string& file, std::uint64_t at)
      : bytes_(bytes), file_(file), at_(at) {}

  /// The next field: its number, and what it holds as a number or as bytes.
  bool next(int& field, std::uint64_t& number, std::string_view& bytes) {
    if (place_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    constexpr std::uint64_t kMostFields = 1U << 29U;
    if (key >> 3U == 0 || key >> 3U >= kMostFields) fail("a field of no number");
    field = static_cast<int>(key >> 3U);
    number = 0;
    bytes = {};
    switch (key & 7U) {
      case 0:
        number = varint();
        return true;
      case 1:
        bytes = take(8);
        return true;
      case 2:
        bytes = take(varint());
        return true;
      case 5:
        bytes = take(4);
        return true;
      default:
        fail("a field of no known type");
    }
  }

  /// The rest as numbers.
  std::vector<std::uint64_t> numbers() {
    std::vector<std::uint64_t> all;
    while (place_ < bytes_.size()) all.push_back(varint());
    return all;
  }

  MessageReader inside(std::string_view bytes) const { return {bytes, file_, at_}; }

 private:
  [[noreturn]] void fail(const std::string& problem) const { refuse_chakra(file_, at_, "holds " + problem); }

  std::uint64_t varint() {
    constexpr unsigned kBits = 64;
    constexpr unsigned kPart = 7;
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < kBits; shift += kPart) {
      if (place_ == bytes_.size()) fail("a number that is cut off");
      const auto byte = static_cast<unsigned char>(bytes_[place_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    fail("a number of more than 64 bits");
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - place_) fail("a field that is cut off");
    const std::string_view taken = bytes_.substr(place_, size);
    place_ += size;
    return taken;
  }

  std::string_view bytes_;
  const std::string& file_;
  std::uint64_t at_ = 0;  // of the message in the file
  std::size_t place_ = 0;
};

// What a file may make of its bytes in memory.
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
  int field = 0;
  std::uint64_t number = 0;
  std::string_view bytes;
  std::string_view name;
  std::uint64_t value = 0;
  constexpr int kSigned[] = {15, 17};  // sint32, sint64: zigzag
  while (message.next(field, number, bytes)) {
    if (field == 1) {
      name = bytes;
    } else {
      value = field == kSigned[0] || field == kSigned[1] ? number >> 1U : number;
    }
  }
  if (name == "is_cpu_op") node.on_host = value != 0;
  if (name == "comm_type") node.collective = value;
}

ChakraNode read_node(MessageReader message) {
  ChakraNode node;
  int field = 0;
  std::uint64_t number = 0;
  std::string_view bytes;
  while (message.next(field, number, bytes)) {
    switch (field) {
      case 1:
        node.id = number;
        break;
      case 2:
        node.name = bytes.substr(0, kLongestName);
        break;
      case 3:
        node.type = number;
        break;
      case 4:
      case 5:
        if (bytes.data() == nullptr) {
          node.waits_for.push_back(number);
        } else {
          const std::vector<std::uint64_t> packed = message.inside(bytes).numbers();
          node.waits_for.insert(node.waits_for.end(), packed.begin(), packed.end());
        }
        break;
      case 6:
        node.start = number;
        break;
      case 7:
        node.duration = number;
        break;
      case 10:
        read_attribute(message.inside(bytes), node);
        break;
      default:
        break;
    }
  }
  return node;
}

// One message behind its length; false at the end of the file.
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
    if (shift == kMostBits) refuse_chakra(file, at, "is no length");
  }
  if (size > kLongest) refuse_chakra(file, at, fmt::format("a message of {} bytes is longer than 16 MiB", size));
  bytes.resize(size);
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  if (stream.gcount() != static_cast<std::streamsize>(size)) refuse_chakra(file, at, "ends inside a message");
  at += size;
  if (at > kMostBytes) refuse_at(file, "holds more than 256 MiB", "a trace of fewer steps");
  return true;
}

// MLCommons' converters give attributes and no version.
bool is_metadata(MessageReader message) {
  int field = 0;
  std::uint64_t number = 0;
  std::string_view bytes;
  if (!message.next(field, number, bytes) || bytes.empty()) return false;
  if (field != 2) return field == 1;
  int name = 0;
  std::string_view text;
  MessageReader attribute = message.inside(bytes);
  return attribute.next(name, number, text) && name == 1 && !text.empty();
}

std::vector<ChakraNode> read_nodes(std::istream& stream, const std::string& file) {
  stream.exceptions(std::ios::badbit);  // a refusal passes through
  std::uint64_t at = 0;
  std::string bytes;
  const auto reader = [&] { return MessageReader(bytes, file, at - bytes.size()); };
  if (!read_message(stream, file, at, bytes)) refuse_chakra(file, 0, "is empty");
  if (!is_metadata(reader())) refuse_chakra(file, 0, "does not begin with the version or attributes of its schema");
  std::vector<ChakraNode> nodes;
  std::size_t edges = 0;
  while (read_message(stream, file, at, bytes)) {
    if (bytes.empty()) refuse_chakra(file, at, "an empty message is no node");
    nodes.push_back(read_node(reader()));
    edges += nodes.back().waits_for.size();
    if (nodes.size() > kMostNodes || edges > kMostEdges) {
      refuse_at(file, fmt::format("holds more than {} nodes or {} dependencies", kMostNodes, kMostEdges),
                "a trace of fewer steps");
    }
  }
  return nodes;
}

// Begins every node when those that it depends on have ended; what is not in the file is not waited for.
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
  if (ready.size() < nodes.size()) refuse_at(file, "has nodes that wait for each other in a circle", "");
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

// Starts since the first one: converters count microseconds from 1970, nodes without a start begin with the first.
void count_from_first(std::vector<ChakraNode>& nodes, const std::string& file) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 50U;  // in microseconds: what no sum of a file exceeds
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
      refuse_at(file, fmt::format("node {} lasts or begins beyond all measure", node.id), "");
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
      if (node.name.rfind("ProfilerStep", 0) == 0) events.marks.emplace_back(node.name, span);
      events.add_host(node.name, span);
    }
  }
  if (events.kernels.empty()) {
    refuse_at(
        file, "holds no node of a device with its duration",
        "a trace that has been measured, or one by flopcast; converters of PyTorch's traces keep duration_micros");
  }
  return cut_into_steps(std::move(events), step_s);
}

}  // namespace flopcast
