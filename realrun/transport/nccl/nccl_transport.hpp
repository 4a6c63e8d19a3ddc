#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "realrun/device/device.hpp"
#include "realrun/rendezvous/meeting.hpp"
#include "realrun/transport/nccl/nccl_api.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A process's rank, and how it reaches the others.
struct NcclOptions {
  ProcessPlace place;
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  const std::atomic<int>* interruption = nullptr;
  /// Called with the failure if the rank has not returned within `patience` after it. Such a rank waits in a call that
  /// cannot be aborted, for example for a communicator that others will not join. Must end the process; if empty, the
  /// run waits for the rank.
  std::function<void(const std::string& failure)> abandon = {};
};

/// Multiprocessors that a message occupies while it is sent or awaited: a receive posted ahead is a kernel that spins
/// on all its blocks until the sender arrives. NCCL takes up to 32 by default, and products that fill the GPU then need
/// a second wave; four carry about 80 GB/s, as much as any network card of 2025 and a fifth of NVLink 4. (NCCL user
/// guide, NCCL_MAX_CTAS and ncclConfig_t.maxCTAs.)
inline constexpr int kMessageBlocks = 4;

/// A rank that is a process with a GPU. Groups of the same members share a communicator. Each direction between two
/// neighbours has its own communicator, with a queue at either end: a message that has not been received yet blocks
/// nothing else, and both ends post in the same order. Collectives that the computation waits for run in its queue,
/// started ones concurrently.
///
/// A separate thread publishes the rank's activity in the store, and checks every 50 ms whether a communicator has an
/// error, the rank has made no progress for `patience`, or another process has failed. It then aborts all communicators
/// at once, so that whatever waits on the GPU returns, and the next call throws Aborted.
class NcclTransport : public RankTransport {
 public:
  using StreamOf = std::function<void*(Queue)>;

  /// All references must outlive it.
  NcclTransport(NcclApi& nccl, Queues& queues, StreamOf stream_of, Store& store, const NcclOptions& options);
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;

  int rank() const override { return options_.place.rank; }
  int rank_count() const override { return options_.place.ranks; }
  Group form_group(Axis axis, const std::vector<int>& members) override;
  void connect(const std::vector<std::pair<int, int>>& pairs) override;
  void send(int to, const MessageKey& key, const Buffer& buffer) override;
  Request receive(int from, const MessageKey& key, const Buffer& into) override;
  void run(const Group& group, const Collective& collective) override;
  Request start(const Group& group, const Collective& collective) override;
  void wait(const Request& request) override;
  void note(const Activity& activity) override;
  SentTraffic traffic() const override { return traffic_; }

  /// Ends the run on all processes with this message, unless it has ended already.
  void fail(const std::string& failure);
  /// Failure of this run; empty while it succeeds.
  std::string failure() const;

 private:
  struct Connection {
    NcclApi::Communicator communicator = nullptr;
    Queue queue = Queue::kSend;
  };
  struct Queued;
  class Joining;

  NcclApi::Communicator join(const std::string& name, const std::vector<int>& members, int index, int blocks);
  void leave_all();
  Connection connect_one(int from, int to);
  std::shared_ptr<Moment> execute(Queue queue, const Group& group, const Collective& collective);
  void all_to_all(const Group& group, const Collective& collective, void* stream);
  void wait_on_host(const std::shared_ptr<Moment>& moment);
  void throw_if_failed() const {
    if (failed_) throw Aborted(failure());
  }
  void watch();
  std::string find_failure();
  void abort_all();
  void abandon() const {
    if (options_.abandon) options_.abandon(failure());
  }
  std::chrono::steady_clock::time_point failed_at() const;

  NcclApi& nccl_;
  Queues& queues_;
  StreamOf stream_of_;
  Store& store_;
  NcclOptions options_;
  KeptBuffers kept_;
  int groups_ = 0;
  std::map<std::vector<int>, NcclApi::Communicator> formed_;       // by members
  std::map<int, NcclApi::Communicator> communicators_;             // by group
  std::map<NcclApi::Communicator, std::shared_ptr<Moment>> last_;  // latest operation
  std::map<std::pair<int, int>, Connection> connections_;          // by sender and receiver
  Buffer token_;                                                   // for barriers
  SentTraffic traffic_;
  std::mutex calling_;  // held while an operation of a communicator is passed to NCCL, because an abort would free it

  mutable std::mutex mutex_;  // guards the members below
  std::vector<NcclApi::Communicator> joined_;
  std::string activity_;
  std::chrono::steady_clock::time_point since_;
  bool idle_ = true;  // the rank's current work has no time limit
  std::string failure_;
  std::chrono::steady_clock::time_point failed_at_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> closing_{false};
  std::thread watcher_;  // last member: it uses the others
};

}  // namespace flopcast::realrun
