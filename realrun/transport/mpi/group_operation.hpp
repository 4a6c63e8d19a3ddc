#pragma once

#include <cstddef>
#include <vector>

#include "realrun/transport/mpi/mpi_calls.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// This member's share of one collective, made of messages to each of the others.
///
///   reduce-scatter  every member sends the others their parts, and adds up its own in the order of the members
///   all-gather      every member sends its part to the others
///   all-reduce      the one, then the other
///   all-to-all      every member sends the others their parts
///   broadcast       the root sends to each; a barrier is an all-gather of nothing
///
/// Each byte that leaves is one that a ring would send too: 2(n-1)/n·S for an all-reduce. MPI's own collectives may add
/// up in an order that depends on message size and timing; these give the bits that threads give. Left out: rings and
/// trees, whose n-1 or log n messages would be fewer than n-1 to each side where groups have hundreds of members.
class GroupOperation {
 public:
  /// Begins it. `tag` is that of the group; messages of one group's operations follow each other in order.
  GroupOperation(MPI_Comm channel, int tag, const Group& group, const Collective& collective);

  /// Gets on with it as far as messages have arrived; true when it is done. Never waits.
  bool progress();
  /// Ranks that this member waits for.
  std::vector<int> awaited() const;
  /// By this member, once it is done.
  std::size_t bytes_sent() const { return bytes_sent_; }

 private:
  enum class Phase { kReduce, kCollect, kDone };
  struct Message {
    MPI_Request request;
    int member;
    bool incoming;
    std::size_t bytes;
  };
  struct Bytes {
    std::size_t first;
    std::size_t count;
  };

  Bytes part(int member) const;
  void begin();
  void begin_reduction();
  void end_reduction();
  void begin_collection();
  void begin_exchange();
  void begin_broadcast();
  void send(int member, const std::byte* from, std::size_t bytes);
  void receive(int member, std::byte* into, std::size_t bytes);

  MPI_Comm channel_;
  int tag_;
  Group group_;
  Collective collective_;
  Phase phase_ = Phase::kDone;
  std::vector<Message> messages_;
  std::vector<std::byte> received_;  // parts to be added up, by member without this one
  std::size_t bytes_sent_ = 0;
};

}  // namespace flopcast::realrun
