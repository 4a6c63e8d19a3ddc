#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// What NCCL hands from one member of a communicator to the others.
struct NcclId {
  std::array<char, 128> bytes{};
};

/// NCCL as the transport uses it, so that tests can put something else in its place. Operations are queued on a stream
/// (cudaStream_t) and return; functions throw EnvironmentError with NCCL's own words.
class NcclApi : public Interface {
 public:
  using Communicator = void*;

  virtual std::string version() const = 0;
  virtual NcclId new_id() = 0;
  /// Waits for all members. `blocks`: of the GPU that its operations may occupy; 0 leaves it to NCCL.
  virtual Communicator join(const NcclId& id, int members, int index, int blocks) = 0;

  /// Between begin_group() and end_group(), for several members in one thread: `into` is there after end_group(), which
  /// waits for all of them.
  virtual void begin_join(const NcclId& id, int members, int index, int blocks, Communicator& into) = 0;

  /// What is called between the two runs as one operation.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  virtual void send(const Buffer& buffer, int to, Communicator communicator, void* stream) = 0;
  virtual void receive(const Buffer& into, int from, Communicator communicator, void* stream) = 0;
  /// All kinds but all-to-all and barrier.
  virtual void collect(const Collective& collective, Communicator communicator, void* stream) = 0;

  /// Empty as long as all is well.
  virtual std::string error_of(Communicator communicator) = 0;
  /// Ends what is under way, on this side.
  virtual void abort(Communicator communicator) = 0;
  /// When all members have called it.
  virtual void leave(Communicator communicator) = 0;
};

/// libnccl.so.2, loaded now; FLOPCAST_NCCL_LIBRARY names another place. Throws EnvironmentError that says what was
/// tried.
std::unique_ptr<NcclApi> load_nccl();

}  // namespace flopcast::realrun
