#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/hardware/network.hpp"
#include "model/layout/layout.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/device/device.hpp"
#include "realrun/rendezvous/meeting.hpp"
#include "sim/program/request.hpp"

namespace flopcast::realrun {

struct Collective;
struct Group;

/// Messages and bytes sent by a rank.
struct TrafficCount {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;  ///< payload that left this rank
};

/// Bytes sent by kind and axis. Collectives of a group of n with S bytes of whole data send, over rings or any other
/// bandwidth-optimal algorithm: all-reduce 2(n-1)/n·S, reduce-scatter and all-gather (n-1)/n·S. An all-to-all sends
/// (n-1)/n of the member's own buffer, the root of a broadcast n-1 times its buffer. A barrier sends nothing.
struct SentTraffic {
  TrafficCount point_to_point;
  std::map<std::pair<CollectiveKind, Axis>, TrafficCount> collectives;

  void add_message(std::size_t bytes);
  void add(const Group& group, const Collective& collective);
  TrafficCount of(CollectiveKind kind, Axis axis) const;
  std::uint64_t bytes_of(Axis axis) const;  ///< point-to-point counts under the pipeline axis
};
SentTraffic operator-(const SentTraffic& later, const SentTraffic& earlier);

/// Identifies a point-to-point message: the activation that is the input of `stage`, or the gradient of its output. No
/// two messages of one step between two ranks have the same key.
struct MessageKey {
  std::uint16_t stage = 0;  ///< the receiving stage
  std::uint32_t microbatch = 0;
  bool activation = true;  ///< false: a gradient

  friend bool operator<(const MessageKey& a, const MessageKey& b) {
    if (a.stage != b.stage) return a.stage < b.stage;
    if (a.microbatch != b.microbatch) return a.microbatch < b.microbatch;
    return a.activation < b.activation;
  }
};
/// "the activation of microbatch 3 for stage 1".
std::string to_string(const MessageKey& key);

enum class Element { kFloat32, kFloat64, kByte };
std::size_t size_of(Element element);
enum class Reduction { kSum, kMax };

/// An operation of all members of a group. With n members:
///   all-reduce      output = reduction over the members' inputs; both have the same size
///   reduce-scatter  member i's output = part i of n of that reduction; the input is n times the output
///   all-gather      output = the members' inputs, concatenated; the output is n times the input
///   all-to-all      part j of n of member i's input becomes part i of member j's output; separate buffers
///   broadcast       output = the root's output; the input is unused
///   barrier         no buffers
/// Input and output may be the same memory in an all-reduce, and an all-gather's input may be its own part of the
/// output. The order of reductions does not depend on timing: equal runs give equal bits.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Buffer input = {};
  Buffer output = {};
  Element element = Element::kFloat32;
  Reduction reduction = Reduction::kSum;
  int root = 0;  ///< index within the group
  /// For an all-to-all: bytes of the parts by member; empty: all parts have the same size. Not over NCCL.
  std::vector<std::size_t> sent = {};
  std::vector<std::size_t> received = {};
};

/// Collectives implemented as messages between their members. Each member sends as much as with any bandwidth-optimal
/// algorithm: parts to be reduced in the first phase, parts to be concatenated in the second. An all-reduce has both
/// phases, a reduce-scatter the first, all others the second; the messages of a barrier are empty.
enum class CollectivePhase { kReduce, kCollect };
bool has_phase(CollectiveKind kind, CollectivePhase phase);
/// Part of a buffer.
struct ByteRange {
  std::size_t first = 0;
  std::size_t bytes = 0;
};
/// The buffer whose parts a member sends.
const Buffer& sent_buffer(const Collective& collective, CollectivePhase phase);
/// The part of that buffer for member `to`, and the location in the output of what arrives from member `from`, which is
/// the same for all in the first phase.
ByteRange leaving(const Group& group, const Collective& collective, CollectivePhase phase, int to);
ByteRange arriving(const Group& group, const Collective& collective, CollectivePhase phase, int from);

/// An ordered set of ranks that communicate with each other, made by RankTransport::form_group.
struct Group {
  int id = 0;
  Axis axis = Axis::kData;   ///< axis under which its traffic is counted
  std::vector<int> members;  ///< ranks, ascending
  int index = 0;             ///< index of this rank among them

  int size() const { return static_cast<int>(members.size()); }
};
/// The group as another of its members sees it.
Group group_of_member(const Group& group, int index);
/// True if a group of one must copy its input to its output; nothing is sent.
bool copies_own(const Collective& collective);
/// Splits `all` into runs of count · every, and returns from each the groups of `count` members that are `every` apart.
std::vector<std::vector<int>> strided_parts(const std::vector<int>& all, int count, int every);
/// Result of form_group() on a rank: without members if the rank is not one of them.
Group group_of(int id, Axis axis, const std::vector<int>& members, int rank);

/// An operation in progress. Released without wait(), it continues, and its buffers stay alive.
class Pending : public Interface {
 public:
  /// Start and end; known after wait(). For started collectives only.
  virtual Interval interval() const { return {}; }
  /// Arrival of a message, if that is not when the receiver continued; known after wait().
  virtual std::optional<Mark> arrival() const { return std::nullopt; }
};
using Request = std::shared_ptr<Pending>;

/// Thrown by a transport's operations on every other rank once one rank has failed: not an error of its own.
class Aborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Describes an exception for the user: names exhausted memory, and threads that could not be started.
std::string reason_of(const std::exception& error);

/// One rank's end of the network; all operations are called from that rank's own thread. Operations that wait give up
/// after the transport's time limit: they abort the whole run with an EnvironmentError that names rank and action.
///
/// Buffers are those of the transport's device. On asynchronous devices (CUDA) an operation waits for work queued
/// before it, and work queued later waits for the operation; host code must call wait().
class RankTransport : public Interface {
 public:
  virtual int rank() const = 0;
  virtual int rank_count() const = 0;
  /// Called by all ranks of the run for every group, in the same order; ranks that are not members get a group of size
  /// 0. A group of one never communicates.
  virtual Group form_group(Axis axis, const std::vector<int>& members) = 0;

  /// Announces the pairs of ranks that will exchange messages, both ways, for transports that make connections. Called
  /// by all ranks with the same list before the first message.
  virtual void connect(const std::vector<std::pair<int, int>>& /*pairs*/) {}

  /// Returns immediately; the buffer must not be written afterwards (the transport shares it until it has arrived).
  /// Between two ranks, messages must be sent in the order in which the receiver calls receive().
  virtual void send(int to, const MessageKey& key, const Buffer& buffer) = 0;
  virtual Request receive(int from, const MessageKey& key, const Buffer& into) = 0;

  /// Returns once the output is valid. Members of a group must call for its collectives in the same order, run() and
  /// start() taken together; they run in that order.
  virtual void run(const Group& group, const Collective& collective) = 0;
  /// The same, overlapped with the computation. A rank's started operations run in the order of the calls.
  virtual Request start(const Group& group, const Collective& collective) = 0;
  virtual void wait(const Request& request) = 0;

  /// Called often during long computations, for transports that make progress only when called (MPI).
  virtual void poke() {}
  /// Announces this rank's current activity.
  virtual void note(const Activity& activity) = 0;
  /// Traffic sent by this rank so far.
  virtual SentTraffic traffic() const = 0;
};

/// The queues of one rank on an asynchronous device, as transports need them. Every call returns immediately. The
/// caller must keep buffers alive until the device has used them (KeptBuffers). Thread-safe across queues: only one
/// call at a time for each queue.
class Queues : public Interface {
 public:
  /// Adds a queue to the named ones. Must be called before other threads use the queues.
  virtual Queue add_queue() = 0;
  /// A few bytes of the device's memory, for signals.
  virtual Buffer reserve_word() = 0;
  virtual std::shared_ptr<Moment> record(Queue queue) = 0;
  /// Work queued from now on waits for the moment, which may belong to any rank of this process.
  virtual void wait(Queue queue, const std::shared_ptr<Moment>& moment) = 0;
  virtual void copy(Queue queue, const Buffer& from, const Buffer& to) = 0;
  /// output = the reduction of the inputs, in order; the output may be one of them.
  virtual void reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
                      const Buffer& output) = 0;
};
/// Queues of the CPU, which completes every call before it returns. Stateless: all ranks share them.
Queues& host_queues();

/// A range of a buffer's elements.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Part `index` of `count` elements split into `parts` nearly equal parts.
Part part_of(std::size_t count, int index, int parts);

/// Element by element inputs[0] + inputs[1] + …, or their maximum, always in that order regardless of arrival: all host
/// transports give the same bits. The output may be one of the inputs.
void reduce_in_order(const std::vector<const std::byte*>& inputs, std::size_t count, Element element,
                     Reduction reduction, std::byte* output);

}  // namespace flopcast::realrun
