#include "realrun/training/training_plan.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "model/layout/rank_grid.hpp"

namespace flopcast::realrun {

RankGrid grid_of(const TrainingPlan& plan) {
  Layout layout;
  layout.dp = plan.replicas();  // cp is innermost among them
  layout.tp = plan.tp;
  layout.pp = plan.pipeline_ranks();
  return RankGrid(layout);
}

namespace {

// Formed by all ranks in this order; returns the last one with this rank, or a group of size 0.
Group form_all(RankTransport& transport, Axis axis, const std::vector<std::vector<int>>& groups) {
  Group own;
  for (const std::vector<int>& members : groups) {
    Group group = transport.form_group(axis, members);
    if (group.size() > 0) own = std::move(group);
  }
  return own;
}

// Ranks with index 0 along the axis.
std::vector<int> first_ranks(const RankGrid& grid, Axis axis) {
  std::vector<int> ranks;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.coordinate(rank, axis) == 0) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

Group form_groups(RankTransport& transport, const RankGrid& grid, Axis axis) {
  std::vector<std::vector<int>> groups;
  for (const int rank : first_ranks(grid, axis)) groups.push_back(grid.group_of(rank, axis));
  return form_all(transport, axis, groups);
}

Group form_cut_groups(RankTransport& transport, const RankGrid& grid, int neighbours, Cut cut, Axis axis) {
  const int replicas = grid.degree(Axis::kData);
  const int count = cut == Cut::kNeighbours ? replicas / neighbours : neighbours;
  std::vector<std::vector<int>> groups;
  for (const int rank : first_ranks(grid, Axis::kData)) {
    const std::vector<int> all = grid.group_of(rank, Axis::kData);
    std::vector<std::vector<int>> parts(static_cast<std::size_t>(count));
    for (int replica = 0; replica < replicas; ++replica) {
      const int place = cut == Cut::kNeighbours ? replica / neighbours : replica % neighbours;
      if (place < count) parts[static_cast<std::size_t>(place)].push_back(all[static_cast<std::size_t>(replica)]);
    }
    groups.insert(groups.end(), parts.begin(), parts.end());
  }
  return form_all(transport, axis, groups);
}

Group form_strided_groups(RankTransport& transport, const RankGrid& grid, int ranks, int every, Axis axis) {
  std::vector<std::vector<int>> groups;
  for (const int rank : first_ranks(grid, Axis::kData)) {
    if (grid.coordinate(rank, Axis::kTensor) != 0) continue;
    std::vector<int> stage;
    for (const int replica : grid.group_of(rank, Axis::kData)) {
      const std::vector<int> line = grid.group_of(replica, Axis::kTensor);
      stage.insert(stage.end(), line.begin(), line.end());
    }
    const std::vector<std::vector<int>> strided = strided_parts(stage, ranks, every);
    groups.insert(groups.end(), strided.begin(), strided.end());
  }
  return form_all(transport, axis, groups);
}

ServerGroups form_server_groups(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid) {
  ServerGroups groups;
  int server = plan.ranks();
  const int neighbours = plan.served_ranks_per_node;
  for (int rank = 0; rank < grid.ranks() && plan.servers > 0; ++rank) {
    if (grid.coordinate(rank, Axis::kData) >= neighbours) continue;
    std::vector<int> peers;
    const std::vector<int> replicas = grid.group_of(rank, Axis::kData);
    for (std::size_t at = static_cast<std::size_t>(grid.coordinate(rank, Axis::kData)); at < replicas.size();
         at += static_cast<std::size_t>(neighbours)) {
      peers.push_back(replicas[at]);
    }
    for (int index = 0; index < plan.servers; ++index, ++server) {
      const bool is_here = transport.rank() == server;
      if (is_here) groups.place = {.worker = rank, .index = index, .pushes = {}, .pull = {}};
      ServerLink link;
      for (const int peer : peers) {
        const Group push = transport.form_group(Axis::kData, {peer, server});
        if (push.size() > 0) link.push = push;
        if (is_here) groups.place.pushes.push_back(push);
      }
      std::vector<int> all = peers;
      all.push_back(server);
      link.pull = transport.form_group(Axis::kData, all);
      if (is_here) groups.place.pull = link.pull;
      if (link.pull.size() > 0) groups.links.push_back(std::move(link));
    }
  }
  return groups;
}

GridPlace form_tensor_grid(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid) {
  GridPlace own;
  if (plan.grid().ranks() == 1) return own;
  for (const int rank : first_ranks(grid, Axis::kTensor)) {
    const std::vector<int> members = grid.group_of(rank, Axis::kTensor);
    GridPlace place = form_grid(transport, plan.tensor_parallel, plan.grid(), members);
    if (std::find(members.begin(), members.end(), transport.rank()) != members.end()) own = std::move(place);
  }
  return own;
}

std::vector<Group> form_shared_groups(RankTransport& transport, const RankGrid& grid,
                                      const std::vector<std::vector<int>>& holders) {
  std::vector<Group> own(holders.size());
  for (const int rank : first_ranks(grid, Axis::kPipeline)) {
    const std::vector<int> pipeline = grid.group_of(rank, Axis::kPipeline);
    for (std::size_t set = 0; set < holders.size(); ++set) {
      std::vector<int> members;
      for (const int holder : holders[set]) members.push_back(pipeline[static_cast<std::size_t>(holder)]);
      // Between stages, but sums gradients of the same weights: the forecast counts this traffic with that of replicas.
      Group group = transport.form_group(Axis::kData, members);
      if (group.size() > 0) own[set] = std::move(group);
    }
  }
  return own;
}

std::vector<std::pair<int, int>> neighbours_of(const TrainingPlan& plan, const RankGrid& grid) {
  std::set<std::pair<int, int>> pairs;
  for (const int rank : first_ranks(grid, Axis::kPipeline)) {
    const std::vector<int> pipeline = grid.group_of(rank, Axis::kPipeline);
    for (const Chain& chain : plan.program.chains) {
      for (int stage = chain.first_stage; stage < chain.last_stage; ++stage) {
        const auto index = static_cast<std::size_t>(stage);
        const int lower = pipeline[static_cast<std::size_t>(plan.program.rank_of_stage[index])];
        const int upper = pipeline[static_cast<std::size_t>(plan.program.rank_of_stage[index + 1])];
        if (lower != upper) pairs.insert(std::minmax(lower, upper));
      }
    }
  }
  return {pairs.begin(), pairs.end()};
}

std::vector<StagePart> parts_of(const TrainingPlan& plan) {
  const std::vector<StagePart> model = split_network(plan.stage_blocks);
  std::vector<StagePart> parts(static_cast<std::size_t>(plan.program.stage_count()));
  for (const Chain& chain : plan.program.chains) {
    std::copy(model.begin(), model.end(), parts.begin() + chain.first_stage);
  }
  return parts;
}

BucketRules bucket_rules(const TrainingPlan& plan) {
  constexpr std::size_t kMebibyte = 1024 * 1024;
  BucketRules rules{
      .bytes = 25 * kMebibyte, .first_bytes = kMebibyte, .within_units = plan.zero > 1, .of_frozen = plan.zero > 2};
  if (plan.bucket_bytes) rules.bytes = rules.first_bytes = static_cast<std::size_t>(*plan.bucket_bytes);
  return rules;
}

std::size_t alignment_of(const TrainingPlan& plan, ComputeDevice& device) {
  const bool cut = plan.zero > 0 || plan.served_ranks_per_node > 0;
  const int parts = plan.network.experts ? std::lcm(plan.replicas(), plan.expert_replicas()) : plan.replicas();
  return std::lcm(device.alignment(), cut ? static_cast<std::size_t>(parts) : 1);
}

namespace {

constexpr std::uint32_t kMessages = 15;
// Long enough for the receiver to sleep.
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
  // The time when a message left is sent after it in a separate message.
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
