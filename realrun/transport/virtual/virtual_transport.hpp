#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "realrun/compute/kept_buffers.hpp"
#include "realrun/compute/queues.hpp"
#include "realrun/transport/threads/hub.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A rank that is a virtual device: its host code is a thread of this process, its queues share a GPU with those of the
/// other ranks. Messages are copies in the memory of that GPU, which the receiver's receive queue makes once the
/// sender's computation has come so far; collectives are copies and reductions from every member's memory, in the order
/// of the members. Threads meet only to tell each other of moments, and do not wait for the GPU.
///
/// What it cannot show: the speed of any link between devices.
class VirtualTransport : public Transport {
 public:
  VirtualTransport(ThreadHub& hub, int rank, Queues& queues);
  VirtualTransport(const VirtualTransport&) = delete;
  VirtualTransport& operator=(const VirtualTransport&) = delete;
  VirtualTransport(VirtualTransport&&) = delete;
  VirtualTransport& operator=(VirtualTransport&&) = delete;
  ~VirtualTransport() override;

  int rank() const override { return rank_; }
  int rank_count() const override { return hub_.ranks(); }
  Group form_group(Axis axis, const std::vector<int>& members) override;
  void send(int to, const MessageKey& key, const Buffer& buffer) override;
  Request receive(int from, const MessageKey& key, const Buffer& into) override;
  void run(const Group& group, const Collective& collective) override;
  Request start(const Group& group, const Collective& collective) override;
  void wait(const Request& request) override;
  void note(const Activity& activity) override { hub_.note(rank_, activity); }
  Traffic traffic() const override;

 private:
  struct Receive;
  struct Started;

  std::shared_ptr<Moment> execute(Queue queue, const Group& group, const Offer& offer);
  std::size_t first_phase(Queue queue, const std::vector<Offer>& members, const Group& group,
                          const Collective& collective);
  std::size_t collect_parts(Queue queue, const std::vector<Offer>& members, const Group& group,
                            const Collective& collective);
  bool has_started(const Group& group) const;
  void work();
  void count(CollectiveKind kind, Axis axis, std::size_t bytes);

  ThreadHub& hub_;
  int rank_ = 0;
  Queues& queues_;
  KeptBuffers kept_;
  int groups_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Started>> waiting_;
  std::shared_ptr<Started> under_way_;
  bool closing_ = false;
  Traffic traffic_;
  std::thread worker_;  // last: it uses the others
};

}  // namespace flopcast::realrun
