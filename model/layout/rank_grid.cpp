#include "model/layout/rank_grid.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

namespace flopcast {

RankGrid::RankGrid(const Layout& layout) {
  for (const Axis axis : layout.placement) {
    strides_[static_cast<std::size_t>(axis)] = ranks_;
    degrees_[static_cast<std::size_t>(axis)] = layout.degree(axis);
    ranks_ *= layout.degree(axis);
  }
}

int RankGrid::stride(Axis axis) const {
  return strides_[static_cast<std::size_t>(axis)];
}
int RankGrid::degree(Axis axis) const {
  return degrees_[static_cast<std::size_t>(axis)];
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

// On even nodes, how a group lies depends on where its first rank lies in its node: of starts that lie alike only the
// first is visited.
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
      // Equal steps through the places of a node: one that finds none new is followed by none that does.
      if (!any_new) break;
    }
    firsts = std::move(more);
  }
  for (const int first : firsts) visit(first);
}

GroupPlacement RankGrid::worst_group(const std::vector<int>& offsets, const std::vector<int>& starts,
                                     const std::vector<Axis>& others, const Cluster& cluster) const {
  GroupPlacement worst;
  worst.ranks = static_cast<int>(offsets.size());
  worst.ranks_per_node = worst.ranks;
  visit_starts(starts, others, cluster, [&](int rank) {
    int nodes = 0;
    int on_this_node = 0;
    int fullest = 0;
    int previous_node = -1;
    for (const int offset : offsets) {
      const int node = cluster.node_of(rank + offset);
      on_this_node = node == previous_node ? on_this_node + 1 : 1;
      if (node != previous_node) ++nodes;
      previous_node = node;
      fullest = std::max(fullest, on_this_node);
    }
    if (nodes > worst.nodes || (nodes == worst.nodes && fullest < worst.ranks_per_node)) {
      worst.nodes = nodes;
      worst.ranks_per_node = fullest;
    }
  });
  const int ranks_on_node = std::min(cluster.devices_per_node, ranks_);
  worst.groups_sharing_nics = std::max(1, ranks_on_node / worst.ranks_per_node);
  return worst;
}

GroupPlacement RankGrid::placement(Axis axis, const Cluster& cluster) const {
  std::vector<int> offsets;
  for (int position = 0; position < degree(axis); ++position) offsets.push_back(position * stride(axis));
  std::vector<Axis> others;
  for (const Axis other : {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline}) {
    if (other != axis) others.push_back(other);
  }
  return worst_group(offsets, {0}, others, cluster);
}

int RankGrid::plane_offset(int position) const {
  const int contexts = degree(Axis::kContext);
  return position % contexts * stride(Axis::kContext) + position / contexts * stride(Axis::kData);
}

GroupPlacement RankGrid::expert_placement(int ep, const Cluster& cluster) const {
  std::vector<int> offsets;
  std::vector<int> starts;
  const int plane = degree(Axis::kContext) * degree(Axis::kData);
  for (int position = 0; position < ep; ++position) offsets.push_back(plane_offset(position));
  for (int position = 0; position < plane; position += ep) starts.push_back(plane_offset(position));
  return worst_group(offsets, starts, {Axis::kTensor, Axis::kPipeline}, cluster);
}

GroupPlacement RankGrid::expert_replica_placement(int ep, const Cluster& cluster) const {
  return expert_shard_placement(ep, degree(Axis::kContext) * degree(Axis::kData), cluster);
}

GroupPlacement RankGrid::expert_shard_placement(int ep, int shards, const Cluster& cluster) const {
  std::vector<int> offsets;
  std::vector<int> starts;
  const int plane = degree(Axis::kContext) * degree(Axis::kData);
  for (int position = 0; position < shards; position += ep) offsets.push_back(plane_offset(position));
  for (int group = 0; group < plane; group += shards) {
    for (int position = group; position < group + std::min(ep, shards); ++position) {
      starts.push_back(plane_offset(position));
    }
  }
  return worst_group(offsets, starts, {Axis::kTensor, Axis::kPipeline}, cluster);
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
