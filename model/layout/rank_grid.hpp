#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "model/hardware/cluster.hpp"
#include "model/layout/layout.hpp"

namespace flopcast {

/// Placement of the ranks of a communication group, as far as it affects its speed.
struct GroupPlacement {
  int ranks = 1;
  int nodes = 1;           ///< nodes that the group spans
  int ranks_per_node = 1;  ///< ranks of the group on its fullest node
  /// Groups of the same axis that use a node's network cards at the same time, including this one.
  int groups_sharing_nics = 1;

  bool crosses_nodes() const { return nodes > 1; }
  auto operator<=>(const GroupPlacement&) const = default;
};

/// Maps global ranks to coordinates. `layout.placement` lists the axes innermost first; ranks fill nodes in order, so
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

  /// Placement of the axis's worst placed group. Every group waits for its slowest member in the next step anyway.
  GroupPlacement placement(Axis axis, const Cluster& cluster) const;
  /// Placement of groups of `ranks` ranks of an axis, taking every `every`-th rank.
  GroupPlacement part_placement(Axis axis, int ranks, int every, const Cluster& cluster) const;
  /// Placement of `ep` expert-parallel ranks, which are adjacent in the plane of context and data ranks, context
  /// innermost.
  GroupPlacement expert_placement(int ep, const Cluster& cluster) const;
  /// Placement of the ranks that hold the same experts: every ep-th rank of that plane.
  GroupPlacement expert_replica_placement(int ep, const Cluster& cluster) const;
  /// Placement of the ranks that hold the same experts within `shards` adjacent ranks of that plane.
  GroupPlacement expert_shard_placement(int ep, int shards, const Cluster& cluster) const;
  /// Variants of expert_placement and expert_replica_placement for `etp` tensor-parallel ranks that share an expert,
  /// with expert ranks adjacent in the space of tensor, context and data ranks: ep groups of etp, and every etp·ep-th
  /// rank.
  GroupPlacement folded_expert_placement(int etp, int ep, const Cluster& cluster) const;
  GroupPlacement folded_replica_placement(int etp, int ep, const Cluster& cluster) const;
  /// Placement of all ranks that hold the same stages: those of tensor, context and data parallelism.
  GroupPlacement stage_placement(const Cluster& cluster) const;
  /// Placement of the subset that shares a microbatch: those of tensor and context parallelism.
  GroupPlacement microbatch_placement(const Cluster& cluster) const;
  /// True if any pair of ranks at positions `from` and `to` of the pipeline axis is on different nodes.
  bool pipeline_hop_crosses_nodes(int from, int to, const Cluster& cluster) const;

 private:
  // Offsets of a group's members from its first rank: equal steps, or `offsets`.
  struct Members {
    int ranks = 1;
    int step = 0;
    std::vector<int> offsets;  // used if step is 0
  };
  Members plane_members(int shards, int every) const;  // every `every`-th of `shards` positions of the plane
  GroupPlacement placed(const Members& members, int nodes, int fullest, const Cluster& cluster) const;
  // Empty if groups may be placed differently.
  std::optional<GroupPlacement> placement_of_alike(const Members& members, const Cluster& cluster) const;
  // The worst placed group among those whose first rank differs from one of `starts` only along `others`.
  GroupPlacement worst_group(const Members& members, const std::vector<int>& starts, const std::vector<Axis>& others,
                             const Cluster& cluster) const;
  template <class Visit>
  void visit_starts(const std::vector<int>& starts, const std::vector<Axis>& others, const Cluster& cluster,
                    Visit visit) const;
  int plane_offset(int position) const;  // of a position in the plane of context and data ranks
  int space_offset(int position) const;  // of a position in the space of tensor, context and data ranks
  Members space_members(int ranks, int every) const;
  GroupPlacement folded(int ranks, int every, int group, const Cluster& cluster) const;

  int ranks_ = 1;
  AxisSizes strides_;
  AxisSizes degrees_;
};

}  // namespace flopcast
