#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "model/hardware/cluster.hpp"
#include "model/layout/layout.hpp"

namespace flopcast {

/// Where the ranks of a communication group sit, as far as its speed depends on it.
struct GroupPlacement {
  int ranks = 1;
  int nodes = 1;           ///< nodes the group touches
  int ranks_per_node = 1;  ///< of the group, on its fullest node
  /// Groups of the same axis that use a node's network cards at the same time, this one included.
  int groups_sharing_nics = 1;

  bool crosses_nodes() const { return nodes > 1; }
  auto operator<=>(const GroupPlacement&) const = default;
};

/// Maps global ranks to coordinates. `layout.placement` names the axes innermost first; ranks fill nodes in order, so
/// the innermost axis gets the fast links.
class RankGrid {
 public:
  explicit RankGrid(const Layout& layout);

  int ranks() const { return ranks_; }
  int coordinate(int rank, Axis axis) const;
  /// The rank reached from `rank` by moving `steps` along the axis.
  int neighbour(int rank, Axis axis, int steps) const { return rank + steps * stride(axis); }
  int stride(Axis axis) const { return strides_[axis]; }
  int degree(Axis axis) const { return degrees_[axis]; }
  /// The ranks that differ from `rank` only along the axis, in order.
  std::vector<int> group_of(int rank, Axis axis) const;

  /// The worst placed group of the axis. Every group waits for its slowest member in the next step anyway.
  GroupPlacement placement(Axis axis, const Cluster& cluster) const;
  /// Of `ranks` of an axis, every so many-th of them.
  GroupPlacement part_placement(Axis axis, int ranks, int every, const Cluster& cluster) const;
  /// Of `ep` expert-parallel ranks, which are neighbours in the plane of context and data ranks, context innermost.
  GroupPlacement expert_placement(int ep, const Cluster& cluster) const;
  /// Of the ranks that hold the same experts: every ep-th of that plane.
  GroupPlacement expert_replica_placement(int ep, const Cluster& cluster) const;
  /// Of the ranks that hold the same experts within `shards` neighbours of that plane.
  GroupPlacement expert_shard_placement(int ep, int shards, const Cluster& cluster) const;
  /// The same two where `etp` tensor-parallel ranks share an expert and expert ranks are neighbours in the space of
  /// tensor, context and data ranks: ep groups of etp, and every etp·ep-th rank.
  GroupPlacement folded_expert_placement(int etp, int ep, const Cluster& cluster) const;
  GroupPlacement folded_replica_placement(int etp, int ep, const Cluster& cluster) const;
  /// Of all ranks that hold the same stages: those of tensor, context and data parallelism.
  GroupPlacement stage_placement(const Cluster& cluster) const;
  /// Of these, those that share a microbatch: of tensor and context parallelism.
  GroupPlacement microbatch_placement(const Cluster& cluster) const;
  /// Whether any pair of ranks at positions `from` and `to` of the pipeline axis sits on different nodes.
  bool pipeline_hop_crosses_nodes(int from, int to, const Cluster& cluster) const;

 private:
  // Where the members of a group are from its first rank: in equal steps, or at each of `offsets`.
  struct Members {
    int ranks = 1;
    int step = 0;
    std::vector<int> offsets;  // where there is no step
  };
  Members plane_members(int shards, int every) const;  // every how many-th of so many positions of the plane
  GroupPlacement placed(const Members& members, int nodes, int fullest, const Cluster& cluster) const;
  // Nothing where groups may lie in different ways.
  std::optional<GroupPlacement> placement_of_alike(const Members& members, const Cluster& cluster) const;
  // The worst placed of the groups whose first rank is any that differs from one of `starts` along `others` alone.
  GroupPlacement worst_group(const Members& members, const std::vector<int>& starts, const std::vector<Axis>& others,
                             const Cluster& cluster) const;
  template <class Visit>
  void visit_starts(const std::vector<int>& starts, const std::vector<Axis>& others, const Cluster& cluster,
                    Visit visit) const;
  int plane_offset(int position) const;  // of a position in the plane of context and data ranks
  int space_offset(int position) const;  // in the space of tensor, context and data ranks
  Members space_members(int ranks, int every) const;
  GroupPlacement folded(int ranks, int every, int group, const Cluster& cluster) const;

  int ranks_ = 1;
  AxisSizes strides_;
  AxisSizes degrees_;
};

}  // namespace flopcast
