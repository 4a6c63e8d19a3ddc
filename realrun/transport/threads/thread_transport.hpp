#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "realrun/transport/threads/hub.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A rank that is a thread. Started collectives run in a second thread of the rank, in their order.
class ThreadTransport : public Transport {
 public:
  ThreadTransport(ThreadHub& hub, int rank);
  ThreadTransport(const ThreadTransport&) = delete;
  ThreadTransport& operator=(const ThreadTransport&) = delete;
  ThreadTransport(ThreadTransport&&) = delete;
  ThreadTransport& operator=(ThreadTransport&&) = delete;
  ~ThreadTransport() override;

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

  void execute(const Group& group, const Collective& collective);
  bool has_started(const Group& group) const;
  void work();
  void count(CollectiveKind kind, Axis axis, std::size_t bytes);

  ThreadHub& hub_;
  int rank_ = 0;
  int groups_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Started>> queue_;
  std::shared_ptr<Started> under_way_;
  bool closing_ = false;
  Traffic traffic_;
  std::thread worker_;  // last: it uses the others
};

}  // namespace flopcast::realrun
