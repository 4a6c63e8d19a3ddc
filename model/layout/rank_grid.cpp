#include "model/layout/rank_grid.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <utility>

namespace flopcast {

RankGrid::RankGrid(const Layout& layout) {
  for (const Axis axis : layout.placement) {
    strides_[axis] = ranks_;
    degrees_[axis] = layout[axis];
    ranks_ *= layout[axis];
  }
}

int RankGrid::coordinate(int rank, Axis axis) const {
  return rank / stride(axis) % degree(axis);
}

std::vector<int> RankGrid::group_of(int rank, Axis axis) const {
  const int first = rank - coordinate(rank, axis) * stride(axis);
  std::vector<int> members;
  for (int position = 0; position < degree(axis); ++position) members.push_back(neighbour(first, axis, position));
  return members;
}

// On even nodes, a group's placement depends only on the position of its first rank within its node; of starts with
// equal positions, only the first is visited.
template <class Visit>
void RankGrid::visit_starts(const std::vector<int>& starts, const std::vector<Axis>& others, const Cluster& cluster,
                            Visit visit) const {
  const int places = cluster.uneven() ? ranks_ : cluster.devices_per_node;
  std::vector<bool> seen(static_cast<std::size_t>(places), false);
  std::vector<int> firsts = starts;
  for (const Axis axis : others) {
    std::vector<int> more;
    std::fill(seen.begin(), seen.end(), false);
    for (int position = 0; position < degree(axis); ++position) {
      bool any_new = false;
      for (const int first : firsts) {
        const int start = neighbour(first, axis, position);
        const auto place = static_cast<std::size_t>(start % places);
        if (seen[place]) continue;
        seen[place] = any_new = true;
        more.push_back(start);
      }
      // Positions advance in equal steps modulo the node size: after one that finds nothing new, none does.
      if (!any_new) break;
    }
    firsts = std::move(more);
  }
  for (const int first : firsts) visit(first);
}

namespace {

// Number of nodes that a group spans, and of its ranks on the fullest node.
struct Spread {
  int nodes = 0;
  int fullest = 0;
};

// For ranks in equal steps that divide a node, or with each rank on a different node.
Spread spread_of_steps(int first, int step, int ranks, int node) {
  if (step >= node) return {ranks, 1};
  const int on_first = std::min(ranks, (node - first % node + step - 1) / step);
  const int later = ranks - on_first;
  const int on_node = node / step;
  return {1 + (later + on_node - 1) / on_node, std::max(on_first, std::min(later, on_node))};
}

// Counts the nodes of ranks given in ascending order.
class SpreadCount {
 public:
  void add(int node) {
    on_this_node_ = node == previous_node_ ? on_this_node_ + 1 : 1;
    if (node != previous_node_) ++spread_.nodes;
    previous_node_ = node;
    spread_.fullest = std::max(spread_.fullest, on_this_node_);
  }
  Spread spread() const { return spread_; }

 private:
  Spread spread_;
  int on_this_node_ = 0;
  int previous_node_ = -1;
};

}  // namespace

GroupPlacement RankGrid::placed(const Members& members, int nodes, int fullest, const Cluster& cluster) const {
  const int ranks_on_node = std::min(cluster.devices_per_node, ranks_);
  return {members.ranks, nodes, fullest, std::max(1, ranks_on_node / fullest)};
}

// The first ranks of groups in equal steps are less than a step away from multiples of a group's span: if spans fill
// nodes, or nodes fill spans, all groups have the same placement.
std::optional<GroupPlacement> RankGrid::placement_of_alike(const Members& members, const Cluster& cluster) const {
  const int step = members.step;
  const int node = cluster.devices_per_node;
  if (cluster.uneven() || step <= 0) return std::nullopt;
  const int span = step * members.ranks;
  const bool alike = step >= node || (node % step == 0 && (node % span == 0 || span % node == 0));
  if (!alike) return std::nullopt;
  const Spread spread = spread_of_steps(0, step, members.ranks, node);
  return placed(members, spread.nodes, spread.fullest, cluster);
}

GroupPlacement RankGrid::worst_group(const Members& members, const std::vector<int>& starts,
                                     const std::vector<Axis>& others, const Cluster& cluster) const {
  Spread worst{1, members.ranks};
  const int step = members.step;
  const int node = cluster.devices_per_node;
  const bool regular = !cluster.uneven() && step > 0 && (step >= node || node % step == 0);
  const auto spread_of = [&](int first) {
    if (regular) return spread_of_steps(first, step, members.ranks, node);
    SpreadCount count;
    for (int index = 0; index < members.ranks; ++index) {
      const int offset = step > 0 ? index * step : members.offsets[static_cast<std::size_t>(index)];
      count.add(cluster.node_of(first + offset));
    }
    return count.spread();
  };
  visit_starts(starts, others, cluster, [&](int first) {
    const Spread spread = spread_of(first);
    if (spread.nodes > worst.nodes || (spread.nodes == worst.nodes && spread.fullest < worst.fullest)) worst = spread;
  });
  return placed(members, worst.nodes, worst.fullest, cluster);
}

GroupPlacement RankGrid::placement(Axis axis, const Cluster& cluster) const {
  const Members members{degree(axis), stride(axis), {}};
  if (const auto placement = placement_of_alike(members, cluster)) return *placement;
  std::vector<Axis> others;
  for (const Axis other : kGridAxes) {
    if (other != axis) others.push_back(other);
  }
  return worst_group(members, {0}, others, cluster);
}

GroupPlacement RankGrid::part_placement(Axis axis, int ranks, int every, const Cluster& cluster) const {
  const Members members{ranks, every * stride(axis), {}};
  if (const auto placement = placement_of_alike(members, cluster)) return *placement;
  std::vector<int> starts;
  for (int group = 0; group < degree(axis); group += ranks * every) {
    for (int position = group; position < group + every; ++position) starts.push_back(position * stride(axis));
  }
  std::vector<Axis> others;
  for (const Axis other : kGridAxes) {
    if (other != axis) others.push_back(other);
  }
  return worst_group(members, starts, others, cluster);
}

int RankGrid::plane_offset(int position) const {
  const int contexts = degree(Axis::kContext);
  return position % contexts * stride(Axis::kContext) + position / contexts * stride(Axis::kData);
}

RankGrid::Members RankGrid::plane_members(int shards, int every) const {
  Members members{(shards + every - 1) / every, 0, {}};
  const int context_step = stride(Axis::kContext);
  if (stride(Axis::kData) == context_step * degree(Axis::kContext)) {
    members.step = context_step * every;
  } else {
    for (int position = 0; position < shards; position += every) members.offsets.push_back(plane_offset(position));
    std::sort(members.offsets.begin(), members.offsets.end());
  }
  return members;
}

GroupPlacement RankGrid::expert_placement(int ep, const Cluster& cluster) const {
  const Members members = plane_members(ep, 1);
  if (const auto placement = placement_of_alike(members, cluster)) return *placement;
  std::vector<int> starts;
  const int plane = degree(Axis::kContext) * degree(Axis::kData);
  for (int position = 0; position < plane; position += ep) starts.push_back(plane_offset(position));
  return worst_group(members, starts, {Axis::kTensor, Axis::kPipeline}, cluster);
}

GroupPlacement RankGrid::expert_replica_placement(int ep, const Cluster& cluster) const {
  return expert_shard_placement(ep, degree(Axis::kContext) * degree(Axis::kData), cluster);
}

GroupPlacement RankGrid::expert_shard_placement(int ep, int shards, const Cluster& cluster) const {
  const Members members = plane_members(shards, ep);
  if (const auto placement = placement_of_alike(members, cluster)) return *placement;
  std::vector<int> starts;
  const int plane = degree(Axis::kContext) * degree(Axis::kData);
  for (int group = 0; group < plane; group += shards) {
    for (int position = group; position < group + std::min(ep, shards); ++position) {
      starts.push_back(plane_offset(position));
    }
  }
  return worst_group(members, starts, {Axis::kTensor, Axis::kPipeline}, cluster);
}

int RankGrid::space_offset(int position) const {
  const int tensors = degree(Axis::kTensor);
  return position % tensors * stride(Axis::kTensor) + plane_offset(position / tensors);
}

RankGrid::Members RankGrid::space_members(int ranks, int every) const {
  Members members{ranks, 0, {}};
  const int tensor_step = stride(Axis::kTensor);
  const int context_step = tensor_step * degree(Axis::kTensor);
  const bool in_order =
      stride(Axis::kContext) == context_step && stride(Axis::kData) == context_step * degree(Axis::kContext);
  if (in_order) {
    members.step = tensor_step * every;
    return members;
  }
  for (int rank = 0; rank < ranks; ++rank) members.offsets.push_back(space_offset(rank * every));
  std::sort(members.offsets.begin(), members.offsets.end());
  return members;
}

// Groups of `ranks` ranks, taking every `every`-th rank; their first ranks are the first `every` of each `group`
// positions.
GroupPlacement RankGrid::folded(int ranks, int every, int group, const Cluster& cluster) const {
  const Members members = space_members(ranks, every);
  if (const auto placement = placement_of_alike(members, cluster)) return *placement;
  std::vector<int> starts;
  const int all = degree(Axis::kTensor) * degree(Axis::kContext) * degree(Axis::kData);
  for (int first = 0; first < all; first += group) {
    for (int position = first; position < first + every; ++position) starts.push_back(space_offset(position));
  }
  return worst_group(members, starts, {Axis::kPipeline}, cluster);
}

GroupPlacement RankGrid::folded_expert_placement(int etp, int ep, const Cluster& cluster) const {
  return folded(ep, etp, etp * ep, cluster);
}

GroupPlacement RankGrid::folded_replica_placement(int etp, int ep, const Cluster& cluster) const {
  const int all = degree(Axis::kTensor) * degree(Axis::kContext) * degree(Axis::kData);
  return folded(all / (etp * ep), etp * ep, all, cluster);
}

GroupPlacement RankGrid::stage_placement(const Cluster& cluster) const {
  const int all = degree(Axis::kTensor) * degree(Axis::kContext) * degree(Axis::kData);
  return folded(all, 1, all, cluster);
}

GroupPlacement RankGrid::microbatch_placement(const Cluster& cluster) const {
  const int ranks = degree(Axis::kTensor) * degree(Axis::kContext);
  return folded(ranks, 1, ranks, cluster);
}

bool RankGrid::pipeline_hop_crosses_nodes(int from, int to, const Cluster& cluster) const {
  if (from == to) return false;
  const bool even = !cluster.uneven();
  if (even && std::abs(to - from) * stride(Axis::kPipeline) >= cluster.devices_per_node) return true;
  bool crosses = false;
  visit_starts({0}, {Axis::kTensor, Axis::kContext, Axis::kData}, cluster, [&](int rank) {
    const int source = neighbour(rank, Axis::kPipeline, from);
    const int target = neighbour(rank, Axis::kPipeline, to);
    crosses = crosses || cluster.node_of(source) != cluster.node_of(target);
  });
  return crosses;
}

}  // namespace flopcast
