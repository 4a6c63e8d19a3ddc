#include "realrun/training/training_plan.hpp"

#include <algorithm>
#include <numeric>
#include <set>
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

Group form_groups(RankTransport& transport, const RankGrid& grid, Axis axis) {
  Group own;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.coordinate(rank, axis) != 0) continue;
    Group group = transport.form_group(axis, grid.group_of(rank, axis));
    if (group.size() > 0) own = std::move(group);
  }
  return own;
}

Group form_cut_groups(RankTransport& transport, const RankGrid& grid, int neighbours, Cut cut, Axis axis) {
  const int replicas = grid.degree(Axis::kData);
  Group own;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.coordinate(rank, Axis::kData) != 0) continue;
    const std::vector<int> all = grid.group_of(rank, Axis::kData);
    const int groups = cut == Cut::kNeighbours ? replicas / neighbours : neighbours;
    for (int index = 0; index < groups; ++index) {
      std::vector<int> members;
      for (int replica = 0; replica < replicas; ++replica) {
        const int place = cut == Cut::kNeighbours ? replica / neighbours : replica % neighbours;
        if (place == index) members.push_back(all[static_cast<std::size_t>(replica)]);
      }
      Group group = transport.form_group(axis, members);
      if (group.size() > 0) own = std::move(group);
    }
  }
  return own;
}

Group form_strided_groups(RankTransport& transport, const RankGrid& grid, int ranks, int every, Axis axis) {
  Group own;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.coordinate(rank, Axis::kTensor) != 0 || grid.coordinate(rank, Axis::kData) != 0) continue;
    std::vector<int> stage;
    for (const int replica : grid.group_of(rank, Axis::kData)) {
      const std::vector<int> line = grid.group_of(replica, Axis::kTensor);
      stage.insert(stage.end(), line.begin(), line.end());
    }
    const int all = static_cast<int>(stage.size());
    for (int first = 0; first < all; ++first) {
      if (first / every % ranks != 0) continue;
      std::vector<int> members;
      for (int index = 0; index < ranks; ++index)
        members.push_back(stage.at(static_cast<std::size_t>(first + index * every)));
      Group group = transport.form_group(axis, members);
      if (group.size() > 0) own = std::move(group);
    }
  }
  return own;
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
  for (int rank = 0; rank < grid.ranks() && plan.grid().ranks() > 1; ++rank) {
    if (grid.coordinate(rank, Axis::kTensor) != 0) continue;
    const std::vector<int> members = grid.group_of(rank, Axis::kTensor);
    GridPlace place = form_grid(transport, plan.tensor_parallel, plan.grid(), members);
    if (std::find(members.begin(), members.end(), transport.rank()) != members.end()) own = std::move(place);
  }
  return own;
}

std::vector<Group> form_shared_groups(RankTransport& transport, const RankGrid& grid,
                                      const std::vector<std::vector<int>>& holders) {
  std::vector<Group> own(holders.size());
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.coordinate(rank, Axis::kPipeline) != 0) continue;
    const std::vector<int> pipeline = grid.group_of(rank, Axis::kPipeline);
    for (std::size_t set = 0; set < holders.size(); ++set) {
      std::vector<int> members;
      for (const int holder : holders[set]) members.push_back(pipeline[static_cast<std::size_t>(holder)]);
      // Between stages, but gradients of the same weights: the forecast counts them with those of replicas.
      Group group = transport.form_group(Axis::kData, members);
      if (group.size() > 0) own[set] = std::move(group);
    }
  }
  return own;
}

std::vector<std::pair<int, int>> neighbours_of(const TrainingPlan& plan, const RankGrid& grid) {
  std::set<std::pair<int, int>> pairs;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.coordinate(rank, Axis::kPipeline) != 0) continue;
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

}  // namespace flopcast::realrun
