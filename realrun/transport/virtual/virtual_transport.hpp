#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "realrun/device/mark.hpp"
#include "realrun/transport/queues.hpp"
#include "realrun/transport/threads/hub.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A rank that is a virtual device: its host code is a thread of this process, its queues share a GPU with those of the
/// other ranks. Messages are copies in the memory of that GPU, which the receiver's receive queue makes once the
/// sender's computation has come so far; collectives are copies and reductions from every member's memory, in the order
/// of the members. Threads meet only to tell each other of moments, and do not wait for the GPU.
///
/// What it cannot show: the speed of any link between devices.
class VirtualTransport : public HubTransport {
 public:
  VirtualTransport(ThreadHub& hub, int rank, Queues& queues) : HubTransport(hub, rank), queues_(queues) {}
  VirtualTransport(const VirtualTransport&) = delete;
  VirtualTransport& operator=(const VirtualTransport&) = delete;
  VirtualTransport(VirtualTransport&&) = delete;
  VirtualTransport& operator=(VirtualTransport&&) = delete;
  ~VirtualTransport() override { close(); }

  void send(int to, const MessageKey& key, const Buffer& buffer) override;
  Request receive(int from, const MessageKey& key, const Buffer& into) override;
  void wait(const Request& request) override;

 private:
  struct Receive;

  Offer offer_of(const Collective& collective) override { return {collective, queues_.record(Queue::kCompute)}; }
  void execute(const Group& group, const Offer& offer) override { enqueue(Queue::kCompute, group, offer); }
  void execute(Started& started) override;
  std::shared_ptr<Moment> enqueue(Queue queue, const Group& group, const Offer& offer);
  std::size_t first_phase(Queue queue, const std::vector<Offer>& members, const Group& group,
                          const Collective& collective);
  std::size_t collect_parts(Queue queue, const std::vector<Offer>& members, const Group& group,
                            const Collective& collective);

  Queues& queues_;
  KeptBuffers kept_;
};

}  // namespace flopcast::realrun
