#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "realrun/transport/transport.hpp"

/// The parts of NCCL's binary interface that are unchanged throughout NCCL 2, so that a build needs no NCCL header; if
/// there is one, tests/gpu/nccl_library_test.cpp compares them.

namespace flopcast::realrun::nccl {

using Result = int;  ///< ncclResult_t
constexpr Result kSuccess = 0;
constexpr Result kInProgress = 7;

/// ncclDataType_t.
constexpr int kByte = 1;  ///< ncclUint8
constexpr int kFloat32 = 7;
constexpr int kFloat64 = 8;
/// ncclRedOp_t.
constexpr int kSum = 0;
constexpr int kMax = 2;

/// ncclConfig_t as of NCCL 2.17 to 2.20; later versions accept it because of its size and version.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int least_blocks = kUndefined;
  int most_blocks = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;

  static constexpr int kUndefined = -2147483647 - 1;
};

}  // namespace flopcast::realrun::nccl

namespace flopcast::realrun {

/// Identifies a communicator; NCCL creates it on one member, which distributes it to the others.
struct NcclId {
  std::array<char, 128> bytes{};
};

/// The part of NCCL that the transport uses, as an interface that tests can replace. Operations are queued on a stream
/// (cudaStream_t) and return; functions throw EnvironmentError with NCCL's error message.
class NcclApi : public Interface {
 public:
  using Communicator = void*;

  virtual std::string version() const = 0;
  virtual NcclId new_id() = 0;
  /// Waits for all members. `blocks`: limit on the GPU's blocks that its operations may occupy; 0 leaves it to NCCL.
  virtual Communicator join(const NcclId& id, int members, int index, int blocks) = 0;

  /// Joins between begin_group() and end_group(), for several members in one thread: `into` is valid after end_group(),
  /// which waits for all of them.
  virtual void begin_join(const NcclId& id, int members, int index, int blocks, Communicator& into) = 0;

  /// Calls in between run as one operation.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  virtual void send(const Buffer& buffer, int to, Communicator communicator, void* stream) = 0;
  virtual void receive(const Buffer& into, int from, Communicator communicator, void* stream) = 0;
  /// Any kind but all-to-all and barrier.
  virtual void collect(const Collective& collective, Communicator communicator, void* stream) = 0;

  /// Empty while there is no error.
  virtual std::string error_of(Communicator communicator) = 0;
  /// Ends operations in progress, on this side.
  virtual void abort(Communicator communicator) = 0;
  /// Leaves the communicator; completes once all members have called it.
  virtual void leave(Communicator communicator) = 0;
};

/// Loads libnccl.so.2, or the library that FLOPCAST_NCCL_LIBRARY names. Throws EnvironmentError listing what was tried.
std::unique_ptr<NcclApi> load_nccl();

}  // namespace flopcast::realrun
