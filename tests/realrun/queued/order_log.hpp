#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace flopcast::realrun {

/// Memory that a piece of work reads or writes.
struct MemoryUse {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool writes = false;
};

/// One member's part in an operation of NCCL's. The n-th operations of a communicator's members belong together.
struct NcclPart {
  const void* communicator = nullptr;
  int members = 0;
  bool message = false;   ///< may be posted ahead: what it holds of the GPU is its own
  int blocks = 0;         ///< of the GPU that it holds until all have come; 0: as many as NCCL takes
  std::string what = {};  ///< of collectives: kind, bytes, root or reduction, the same for all members
  std::vector<std::tuple<int, int, std::size_t>> sends = {};  ///< from, to, bytes
  std::vector<std::tuple<int, int, std::size_t>> receives = {};
};

/// What the host of one rank has queued, in its order, and what it has seen done: enough to find what only luck keeps
/// in order, whatever happened to come first in the run that was logged.
class OrderLog {
 public:
  struct Entry {
    enum class Kind { kWork, kNccl, kRecord, kWait, kSaw, kWaited, kReleased };
    Kind kind = Kind::kWork;
    int queue = 0;
    std::size_t moment = 0;
    std::vector<MemoryUse> uses = {};
    NcclPart part = {};
  };

  /// What the next work that this thread queues uses.
  static void note_use(const void* address, std::size_t bytes, bool writes);
  static std::vector<MemoryUse> take_uses();
  /// Groups of NCCL's that this thread has open: operations in them are not queued yet.
  static thread_local int open_groups;

  void work(int queue, std::vector<MemoryUse> uses);
  void nccl(int queue, std::vector<MemoryUse> uses, NcclPart part);
  std::size_t record(int queue);
  /// Whether the moment was recorded here: a stream that waits for another event waits for nothing.
  bool wait(int queue, const OrderLog* recorded_by, std::size_t moment);
  /// The host knows that the moment was reached; `waited`: it has not come further until then. What it only found out
  /// lets it hand memory back, and orders nothing else.
  void saw(std::size_t moment, bool waited);
  void released(const void* address, std::size_t bytes);

  std::vector<Entry> entries() const;
  /// Found while it was written: waits for moments that were not recorded, moments in open groups.
  std::vector<std::string> misuses() const;

 private:
  void add(Entry entry);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<std::string> misuses_;
  std::size_t moments_ = 0;
};

/// The narrowest GPU that a run must get through on: kernels of NCCL's hold their blocks until all members have come.
struct NarrowGpu {
  /// Queues of the GPU that streams share: what stands behind waits (CUDA_DEVICE_MAX_CONNECTIONS).
  int connections = 32;
  int multiprocessors = 56;  ///< a block each; an A30's
  int collective_blocks = 32;
};

/// What is wrong with the order of those ranks' work, each once, named by rank and queue; nothing where all is well:
/// - misuses;
/// - memory, or a communicator, that two queues use, one of them writing, where no moment orders the two;
/// - memory handed back while a queue other than the computation may still use it;
/// - members of a communicator whose operations do not fit each other;
/// - a run that gets no further on the narrow GPU, where streams share connections and the collectives of a rank come
///   one after the other, in the order of the calls (NCCL user guide, "Using multiple NCCL communicators
///   concurrently").
std::vector<std::string> order_faults(const std::vector<std::shared_ptr<OrderLog>>& ranks, const NarrowGpu& gpu = {});

}  // namespace flopcast::realrun
