#include "realrun/training/training_plan.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace flopcast::realrun {

namespace {

constexpr std::uint32_t kMessages = 15;
// By then the receiver has gone to sleep.
constexpr auto kBefore = std::chrono::milliseconds(1);
constexpr auto kLongEnoughToArrive = std::chrono::milliseconds(5);

struct Route {
  int sender = 0;  // pipeline ranks
  int receiver = 0;
  MessageKey key;
  std::size_t bytes = 0;
};

/// One end of a route.
class RouteEnd {
 public:
  RouteEnd(const Route& route, int peer, RankTransport& transport, ComputeDevice& device)
      : route_(route), peer_(peer), transport_(transport), device_(device) {}

  void send_all() {
    for (std::uint32_t message = 0; message < kMessages; ++message) {
      std::this_thread::sleep_for(kBefore);
      device_.hold();
      const Buffer buffer = device_.allocate(route_.bytes);
      const Mark sent = device_.mark();
      transport_.send(peer_, key(message), buffer);
      transport_.poke();
      send_time(message, device_.time_of(sent));
    }
    for (std::uint32_t message = kMessages; message < 2 * kMessages; ++message) {
      transport_.send(peer_, key(message), device_.allocate(route_.bytes));
    }
  }

  MessageTimes receive_all() {
    MessageTimes times{route_.key, route_.bytes, {}, {}};
    for (std::uint32_t message = 0; message < kMessages; ++message) {
      const Ticks arrived = device_.time_of(receive(message));
      times.one_way.push_back(arrived - receive_time(message));
    }
    std::this_thread::sleep_for(kLongEnoughToArrive);
    for (std::uint32_t message = kMessages; message < 2 * kMessages; ++message) {
      device_.hold();
      const Mark start = device_.mark();
      const Mark arrived = receive(message);
      times.receive.push_back(std::max<Ticks>(0, device_.time_of(arrived) - device_.time_of(start)));
    }
    return times;
  }

 private:
  MessageKey key(std::uint32_t number) const { return {route_.key.stage, number, route_.key.activation}; }
  // When a message left follows it as a message of its own.
  MessageKey time_key(std::uint32_t number) const { return key(number + 2 * kMessages); }

  void send_time(std::uint32_t message, Ticks sent) {
    const Buffer stamp = device_.allocate(sizeof(sent));
    device_.upload(reinterpret_cast<const std::byte*>(&sent), stamp);
    transport_.send(peer_, time_key(message), stamp);
  }

  Ticks receive_time(std::uint32_t message) {
    const Buffer stamp = device_.allocate(sizeof(Ticks));
    transport_.wait(transport_.receive(peer_, time_key(message), stamp));
    Ticks sent = 0;
    device_.download(stamp, reinterpret_cast<std::byte*>(&sent));
    return sent;
  }

  Mark receive(std::uint32_t message) {
    const Request request = transport_.receive(peer_, key(message), device_.reserve(route_.bytes));
    transport_.wait(request);
    return request->arrival().value_or(device_.mark());
  }

  const Route& route_;
  int peer_ = 0;
  RankTransport& transport_;
  ComputeDevice& device_;
};

std::vector<Route> routes_of(const Program& program, const StageCompute& compute) {
  std::vector<Route> routes;
  for (const Chain& chain : program.chains) {
    for (int stage = chain.first_stage; stage < chain.last_stage; ++stage) {
      const auto index = static_cast<std::size_t>(stage);
      const int lower = program.rank_of_stage[index];
      const int upper = program.rank_of_stage[index + 1];
      const std::size_t bytes = compute.boundary_bytes(stage);
      if (lower == upper || bytes < sizeof(Ticks)) continue;
      const auto number = static_cast<std::uint16_t>(stage);
      routes.push_back({lower, upper, {static_cast<std::uint16_t>(number + 1), 0, true}, bytes});
      routes.push_back({upper, lower, {number, 0, false}, bytes});
    }
  }
  return routes;
}

}  // namespace

std::vector<MessageTimes> measure_messages(const Program& program, const RankPlace& place, const StageCompute& compute,
                                           RankTransport& transport, ComputeDevice& device) {
  std::vector<MessageTimes> received;
  for (const Route& route : routes_of(program, compute)) {
    if (place.pipeline_rank == route.sender) {
      RouteEnd(route, place.transport_ranks[static_cast<std::size_t>(route.receiver)], transport, device).send_all();
    } else if (place.pipeline_rank == route.receiver) {
      const int from = place.transport_ranks[static_cast<std::size_t>(route.sender)];
      received.push_back(RouteEnd(route, from, transport, device).receive_all());
    }
  }
  return received;
}

}  // namespace flopcast::realrun
