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

/// What a rank sent.
struct TrafficCount {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;  ///< payload that left this rank
};

/// Bytes sent by kind and axis. Collectives of a group of n with S bytes of whole data send, over rings or whatever
/// else is bandwidth-optimal: all-reduce 2(n-1)/n·S, reduce-scatter and all-gather (n-1)/n·S. All-to-all sends (n-1)/n
/// of the member's own buffer, the root of a broadcast n-1 times its buffer. A barrier sends nothing.
struct SentTraffic {
  TrafficCount point_to_point;
  std::map<std::pair<CollectiveKind, Axis>, TrafficCount> collectives;

  void add_message(std::size_t bytes);
  void add(const Group& group, const Collective& collective);
  TrafficCount of(CollectiveKind kind, Axis axis) const;
  std::uint64_t bytes_of(Axis axis) const;  ///< point-to-point counts under the pipeline axis
};
SentTraffic operator-(const SentTraffic& later, const SentTraffic& earlier);

/// What a point-to-point message carries: the activation that `stage` is to work on, or the gradient of its output.
/// No two messages of one step between two ranks have the same key.
struct MessageKey {
  std::uint16_t stage = 0;  ///< that receives
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
///   all-reduce      output = reduction over the members' inputs; both of one size
///   reduce-scatter  member i's output = part i of n of that reduction; input n times the output
///   all-gather      output = the members' inputs, one behind the other; output n times the input
///   all-to-all      part j of n of member i's input becomes part i of member j's output; not one buffer
///   broadcast       output = the root's output, where input is unused
///   barrier         no buffers
/// Input and output may be the same memory in an all-reduce, and an all-gather's input its own part of the output.
/// Reductions add up in an order that does not depend on timing: equal runs give equal bits.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Buffer input = {};
  Buffer output = {};
  Element element = Element::kFloat32;
  Reduction reduction = Reduction::kSum;
  int root = 0;  ///< index within the group
  /// Of an all-to-all, bytes of the parts by member; empty: all parts are of one size. Not over NCCL.
  std::vector<std::size_t> sent = {};
  std::vector<std::size_t> received = {};
};

/// Collectives as messages between their members, of which each sends what every bandwidth-optimal algorithm does: in
/// the first phase parts to be added up, in the second what is put together. An all-reduce has both phases, a
/// reduce-scatter the first, all else the second; in a barrier the messages are empty.
enum class CollectivePhase { kReduce, kCollect };
bool has_phase(CollectiveKind kind, CollectivePhase phase);
/// Part of a buffer.
struct ByteRange {
  std::size_t first = 0;
  std::size_t bytes = 0;
};
/// The buffer whose parts leave a member.
const Buffer& sent_buffer(const Collective& collective, CollectivePhase phase);
/// A member's part of that for the member with index `to`, and where in its output belongs what comes from `from`: in
/// the first phase the same for all.
ByteRange leaving(const Group& group, const Collective& collective, CollectivePhase phase, int to);
ByteRange arriving(const Group& group, const Collective& collective, CollectivePhase phase, int from);

/// An ordered set of ranks that communicate with each other, made by RankTransport::form_group.
struct Group {
  int id = 0;
  Axis axis = Axis::kData;   ///< what its traffic is counted under
  std::vector<int> members;  ///< ranks, ascending
  int index = 0;             ///< of this rank among them

  int size() const { return static_cast<int>(members.size()); }
};
/// The group as another of its members sees it.
Group group_of_member(const Group& group, int index);
/// Whether a group of one has its input to copy: nothing leaves the rank.
bool copies_own(const Collective& collective);
/// In every run of count · every of `all` those that lie `every` apart, `count` each.
std::vector<std::vector<int>> strided_parts(const std::vector<int>& all, int count, int every);
/// What form_group() tells a rank of a group: without members where it is not one of them.
Group group_of(int id, Axis axis, const std::vector<int>& members, int rank);

/// An operation under way. Released without wait(), it goes on, and its buffers stay alive.
class Pending : public Interface {
 public:
  /// When it ran; known after wait(). Of a started collective only.
  virtual Interval interval() const { return {}; }
  /// When a message had come, where that is not when the receiver went on; known after wait().
  virtual std::optional<Mark> arrival() const { return std::nullopt; }
};
using Request = std::shared_ptr<Pending>;

/// Thrown out of a transport's operations on every other rank once one rank has failed: not an error of its own.
class Aborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What an exception means to the user: memory that ran out has a name, and threads that were not to be had.
std::string reason_of(const std::exception& error);

/// One rank's end of the network; all operations are called from that rank's own thread. Operations that wait give up
/// after the transport's time limit: they abort the whole run with an EnvironmentError that names rank and action.
///
/// Buffers are those of the device the transport belongs to. On devices that run behind the host's back (CUDA) an
/// operation waits for what was queued before it, and what is queued later waits for it; host code needs wait().
class RankTransport : public Interface {
 public:
  virtual int rank() const = 0;
  virtual int rank_count() const = 0;
  /// Called by all ranks of the run, one after the other for every group in the same order; those that are no members
  /// get a group of size 0. A group of one never communicates.
  virtual Group form_group(Axis axis, const std::vector<int>& members) = 0;

  /// Between which ranks messages will go, both ways. Called by all ranks with the same list before the first message,
  /// for transports that make connections.
  virtual void connect(const std::vector<std::pair<int, int>>& /*pairs*/) {}

  /// Returns at once; nobody may write to the buffer afterwards (the transport shares it until it has arrived).
  /// Between two ranks, messages are sent in the order in which the receiver calls receive().
  virtual void send(int to, const MessageKey& key, const Buffer& buffer) = 0;
  virtual Request receive(int from, const MessageKey& key, const Buffer& into) = 0;

  /// Returns when the output is there. Members of a group call for its collectives in the same order, run() and start()
  /// taken together, and they are executed in that order.
  virtual void run(const Group& group, const Collective& collective) = 0;
  /// The same beside the computation. Started operations of a rank run in the order of the calls.
  virtual Request start(const Group& group, const Collective& collective) = 0;
  virtual void wait(const Request& request) = 0;

  /// Called often inside long computations, for transports that progress only when called (MPI).
  virtual void poke() {}
  /// What this rank does from now on.
  virtual void note(const Activity& activity) = 0;
  /// What this rank has sent so far.
  virtual SentTraffic traffic() const = 0;
};

/// The queues of one rank on a device that works behind the host's back, as transports need them. Every call returns at
/// once. Nothing keeps a buffer alive until the device has come to it: whoever calls does (KeptBuffers). Any thread may
/// call, one at a time for each queue.
class Queues : public Interface {
 public:
  /// One more, beside those that have names. Before any other thread uses the queues.
  virtual Queue add_queue() = 0;
  /// A few bytes of the device's memory, for signals.
  virtual Buffer reserve_word() = 0;
  virtual std::shared_ptr<Moment> record(Queue queue) = 0;
  /// What is called for the queue from now on waits for the moment, of whichever rank of this process.
  virtual void wait(Queue queue, const std::shared_ptr<Moment>& moment) = 0;
  virtual void copy(Queue queue, const Buffer& from, const Buffer& to) = 0;
  /// output = the reduction of the inputs, in their order; the output may be one of them.
  virtual void reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
                      const Buffer& output) = 0;
};
/// Of the CPU, which has done everything when a call returns. It has no state: all ranks share it.
Queues& host_queues();

/// Part of the elements of a buffer.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Part `index` of `parts` nearly equal ones of `count` elements.
Part part_of(std::size_t count, int index, int parts);

/// Element by element inputs[0] + inputs[1] + …, or their maximum, in that order whatever arrived first: every
/// transport of the host gives the same bits. The output may be one of the inputs.
void reduce_in_order(const std::vector<const std::byte*>& inputs, std::size_t count, Element element,
                     Reduction reduction, std::byte* output);

}  // namespace flopcast::realrun
