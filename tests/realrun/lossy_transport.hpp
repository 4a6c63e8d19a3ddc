#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// Forwards all calls, but lets a callback decide whether a message is sent.
class LossyTransport : public RankTransport {
 public:
  LossyTransport(RankTransport& inner, std::function<bool(const MessageKey&)> may_send)
      : inner_(inner), may_send_(std::move(may_send)) {}
  int rank() const override { return inner_.rank(); }
  int rank_count() const override { return inner_.rank_count(); }
  Group form_group(Axis axis, const std::vector<int>& members) override { return inner_.form_group(axis, members); }
  void send(int to, const MessageKey& key, const Buffer& buffer) override {
    if (may_send_(key)) inner_.send(to, key, buffer);
  }
  Request receive(int from, const MessageKey& key, const Buffer& into) override {
    return inner_.receive(from, key, into);
  }
  void run(const Group& group, const Collective& collective) override { inner_.run(group, collective); }
  Request start(const Group& group, const Collective& collective) override { return inner_.start(group, collective); }
  void wait(const Request& request) override { inner_.wait(request); }
  void note(const Activity& activity) override { inner_.note(activity); }
  void poke() override { inner_.poke(); }
  SentTraffic traffic() const override { return inner_.traffic(); }

 private:
  RankTransport& inner_;
  std::function<bool(const MessageKey&)> may_send_;
};

}  // namespace flopcast::realrun
