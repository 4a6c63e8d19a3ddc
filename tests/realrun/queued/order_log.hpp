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

/// One member's part in an NCCL operation. The n-th operations of a communicator's members belong together.
struct NcclPart {
  const void* communicator = nullptr;
  int members = 0;
  bool message = false;   ///< may be posted ahead: its blocks are not shared with other operations
  int blocks = 0;         ///< GPU blocks that it occupies until all members have arrived; 0: as many as NCCL uses
  std::string what = {};  ///< of collectives: kind, bytes, root or reduction, the same for all members
  std::vector<std::tuple<int, int, std::size_t>> sends = {};  ///< from, to, bytes
  std::vector<std::tuple<int, int, std::size_t>> receives = {};
};

/// The work that the host of one rank has queued, in order, and the completions it has seen: enough to find work that
/// is ordered only by luck, whatever happened first in the logged run.
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

  /// Uses of the next work that this thread queues.
  static void note_use(const void* address, std::size_t bytes, bool writes);
  static std::vector<MemoryUse> take_uses();
  /// NCCL groups that this thread has open: operations in them are not queued yet.
  static thread_local int open_groups;

  void work(int queue, std::vector<MemoryUse> uses);
  void nccl(int queue, std::vector<MemoryUse> uses, NcclPart part);
  std::size_t record(int queue);
  /// Returns true if the moment was recorded here: a stream that waits for another event waits for nothing.
  bool wait(int queue, const OrderLog* recorded_by, std::size_t moment);
  /// The host knows that the moment was reached; `waited`: it did not continue before that. A completion that it only
  /// observed lets it release memory, but orders nothing else.
  void saw(std::size_t moment, bool waited);
  void released(const void* address, std::size_t bytes);

  std::vector<Entry> entries() const;
  /// Misuses found while logging: waits for moments that were not recorded, moments in open groups.
  std::vector<std::string> misuses() const;

 private:
  void add(Entry entry);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<std::string> misuses_;
  std::size_t moments_ = 0;
};

/// The narrowest GPU on which a run must complete: NCCL kernels occupy their blocks until all members have arrived.
struct NarrowGpu {
  /// Queues of the GPU that streams share: later work in one waits (CUDA_DEVICE_MAX_CONNECTIONS).
  int connections = 32;
  int multiprocessors = 56;  ///< one block each; as on an A30
  int collective_blocks = 32;
};

/// Faults in the order of these ranks' work, each once, named by rank and queue; empty if there are none:
/// - misuses;
/// - memory, or a communicator, that two queues use without a moment that orders them, and at least one of them writes;
/// - memory released while a queue other than the computation may still use it;
/// - members of a communicator whose operations do not match;
/// - a run that gets stuck on the narrow GPU, where streams share connections and the collectives of a rank run one
/// after another, in the order of the calls (NCCL user guide, "Using multiple NCCL communicators concurrently").
std::vector<std::string> order_faults(const std::vector<std::shared_ptr<OrderLog>>& ranks, const NarrowGpu& gpu = {});

}  // namespace flopcast::realrun
