#pragma once

#include "realrun/device/device.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A rank without neighbours on the pipeline: messages it sends go nowhere, and those it asks for hold noise and are
/// there at once. Collectives are those of the transport behind it. A program's actions then run in their order, at
/// their memory, as fast as the rank can: what is left of a step without waiting.
class LoopbackTransport : public RankTransport {
 public:
  LoopbackTransport(RankTransport& behind, ComputeDevice& device) : behind_(behind), device_(device) {}

  int rank() const override { return behind_.rank(); }
  int rank_count() const override { return behind_.rank_count(); }
  Group form_group(Axis axis, const std::vector<int>& members) override { return behind_.form_group(axis, members); }
  void connect(const std::vector<std::pair<int, int>>& pairs) override { behind_.connect(pairs); }
  void send(int to, const MessageKey& key, const Buffer& buffer) override;
  Request receive(int from, const MessageKey& key, const Buffer& into) override;
  void run(const Group& group, const Collective& collective) override { behind_.run(group, collective); }
  Request start(const Group& group, const Collective& collective) override { return behind_.start(group, collective); }
  void wait(const Request& request) override;
  void poke() override { behind_.poke(); }
  void note(const Activity& activity) override { behind_.note(activity); }
  SentTraffic traffic() const override { return behind_.traffic(); }

 private:
  RankTransport& behind_;
  ComputeDevice& device_;
  Buffer noise_;  // as large as the largest message so far
};

}  // namespace flopcast::realrun
