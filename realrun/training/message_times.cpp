#include "realrun/training/message_times.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include "realrun/compute/host_clock.hpp"

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

// The first bytes of each message tell when it left.
void send_stamped(Transport& transport, int to, const MessageKey& key, std::size_t bytes) {
  const Buffer message = allocate_host(bytes);
  const Ticks now = host_clock();
  std::memcpy(message.address(), &now, sizeof(now));
  transport.send(to, key, message);
}

void send_all(const Route& route, int to, Transport& transport) {
  MessageKey key = route.key;
  for (; key.microbatch < kMessages; ++key.microbatch) {
    std::this_thread::sleep_for(kBefore);
    send_stamped(transport, to, key, route.bytes);
    transport.poke();
  }
  for (; key.microbatch < 2 * kMessages; ++key.microbatch) send_stamped(transport, to, key, route.bytes);
}

MessageTimes receive_all(const Route& route, int from, Transport& transport) {
  MessageTimes times{route.key, route.bytes, {}, {}};
  MessageKey key = route.key;
  for (; key.microbatch < kMessages; ++key.microbatch) {
    const Buffer message = allocate_host(route.bytes);
    transport.wait(transport.receive(from, key, message));
    Ticks sent = 0;
    std::memcpy(&sent, message.address(), sizeof(sent));
    times.one_way.push_back(host_clock() - sent);
  }
  std::this_thread::sleep_for(kLongEnoughToArrive);
  for (; key.microbatch < 2 * kMessages; ++key.microbatch) {
    const Buffer message = allocate_host(route.bytes);
    const Ticks start = host_clock();
    transport.wait(transport.receive(from, key, message));
    times.receive.push_back(host_clock() - start);
  }
  return times;
}

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
                                           Transport& transport) {
  std::vector<MessageTimes> received;
  for (const Route& route : routes_of(program, compute)) {
    if (place.pipeline_rank == route.sender) {
      send_all(route, place.transport_ranks[static_cast<std::size_t>(route.receiver)], transport);
    } else if (place.pipeline_rank == route.receiver) {
      received.push_back(receive_all(route, place.transport_ranks[static_cast<std::size_t>(route.sender)], transport));
    }
  }
  return received;
}

}  // namespace flopcast::realrun
