#include "model/layout/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "model/layout/rank_grid.hpp"

namespace flopcast {
namespace {

Layout layout_of(int tp, int cp, int dp, int pp) {
  Layout layout;
  layout.tp = tp;
  layout.cp = cp;
  layout.dp = dp;
  layout.pp = pp;
  return layout;
}

Cluster nodes_of(int nodes, int devices) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = devices;
  return cluster;
}

TEST(Layout, SpreadsLayersAsEvenlyAsPossible) {
  EXPECT_EQ(even_stage_layers(8, 4), std::vector<int>({2, 2, 2, 2}));
  EXPECT_EQ(even_stage_layers(7, 4), std::vector<int>({2, 2, 2, 1}));
  EXPECT_EQ(even_stage_layers(6, 4), std::vector<int>({1, 2, 2, 1}));
  EXPECT_EQ(even_stage_layers(7, 2), std::vector<int>({4, 3}));
  EXPECT_EQ(even_stage_layers(5, 1), std::vector<int>({5}));
  for (int layers = 1; layers < 40; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const std::vector<int> counts = even_stage_layers(layers, stages);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), layers);
      EXPECT_LE(*std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end()), 1);
    }
  }
}

TEST(RankGrid, TensorParallelRanksAreNeighbours) {
  const RankGrid grid(layout_of(4, 1, 2, 2));
  EXPECT_EQ(grid.ranks(), 16);
  EXPECT_EQ(grid.group_of(5, Axis::kTensor), std::vector<int>({4, 5, 6, 7}));
  EXPECT_EQ(grid.group_of(5, Axis::kData), std::vector<int>({1, 5}));
  EXPECT_EQ(grid.group_of(5, Axis::kPipeline), std::vector<int>({5, 13}));
  for (int rank = 0; rank < 16; ++rank) {
    const int rebuilt = grid.coordinate(rank, Axis::kTensor) * grid.stride(Axis::kTensor) +
                        grid.coordinate(rank, Axis::kData) * grid.stride(Axis::kData) +
                        grid.coordinate(rank, Axis::kPipeline) * grid.stride(Axis::kPipeline);
    EXPECT_EQ(rebuilt, rank);
  }
}

// Each case is compared with placements worked out by hand.
TEST(RankGrid, PlacementDecidesWhichLinksAGroupUses) {
  const GroupPlacement inside = RankGrid(layout_of(8, 1, 4, 2)).placement(Axis::kTensor, nodes_of(8, 8));
  EXPECT_EQ(inside.nodes, 1);
  EXPECT_EQ(inside.ranks_per_node, 8);
  EXPECT_EQ(inside.groups_sharing_nics, 1);

  // tp 2: data-parallel groups have 4 ranks per node, and two such groups share the node's cards.
  const GroupPlacement data = RankGrid(layout_of(2, 1, 8, 2)).placement(Axis::kData, nodes_of(4, 8));
  EXPECT_EQ(data.ranks, 8);
  EXPECT_EQ(data.nodes, 2);
  EXPECT_EQ(data.ranks_per_node, 4);
  EXPECT_EQ(data.groups_sharing_nics, 2);

  // tp 8 fills the node: every data-parallel group has one rank per node, and eight groups share the cards.
  const GroupPlacement one_each = RankGrid(layout_of(8, 1, 4, 1)).placement(Axis::kData, nodes_of(4, 8));
  EXPECT_EQ(one_each.nodes, 4);
  EXPECT_EQ(one_each.ranks_per_node, 1);
  EXPECT_EQ(one_each.groups_sharing_nics, 8);

  // tp 3 on 8-device nodes: ranks 6, 7, 8 straddle two nodes.
  const GroupPlacement straddling = RankGrid(layout_of(3, 1, 8, 1)).placement(Axis::kTensor, nodes_of(3, 8));
  EXPECT_EQ(straddling.nodes, 2);

  Layout pipeline_inside = layout_of(2, 1, 8, 4);
  pipeline_inside.placement = {Axis::kTensor, Axis::kPipeline, Axis::kContext, Axis::kData};
  EXPECT_FALSE(RankGrid(pipeline_inside).pipeline_hop_crosses_nodes(0, 1, nodes_of(8, 8)));
  EXPECT_TRUE(RankGrid(layout_of(2, 1, 8, 4)).pipeline_hop_crosses_nodes(0, 1, nodes_of(8, 8)));
}

Cluster uneven_nodes(const std::vector<int>& devices) {
  Cluster cluster;
  cluster.nodes = static_cast<int>(devices.size());
  cluster.devices_per_node = *std::max_element(devices.begin(), devices.end());
  cluster.node_devices.emplace_back();
  int first = 0;
  for (const int count : devices) {
    cluster.uneven_nodes.push_back({first, count, 0});
    first += count;
  }
  return cluster;
}

TEST(Cluster, RanksFillUnevenNodesInOrder) {
  const Cluster cluster = uneven_nodes({4, 3, 1});
  EXPECT_EQ(cluster.devices(), 8);
  const std::vector<int> expected = {0, 0, 0, 0, 1, 1, 1, 2};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(cluster.node_of(rank), expected[static_cast<std::size_t>(rank)]) << rank;
  }
}

struct Counted {
  int nodes = 0;
  int fullest = 0;
};

// The worst of several groups of ranks on even nodes, found by checking each rank.
Counted worst_of(const std::vector<std::vector<int>>& groups, int node) {
  Counted worst;
  for (const std::vector<int>& group : groups) {
    std::map<int, int> on_node;
    for (const int rank : group) ++on_node[rank / node];
    Counted counted{static_cast<int>(on_node.size()), 0};
    for (const auto& [number, ranks] : on_node) counted.fullest = std::max(counted.fullest, ranks);
    const bool worse = counted.nodes > worst.nodes || (counted.nodes == worst.nodes && counted.fullest < worst.fullest);
    if (worse) worst = counted;
  }
  return worst;
}

TEST(RankGrid, PlacementIsThatOfTheWorstGroupOfAll) {
  std::mt19937 random(5);
  const auto draw = [&random](std::vector<int> values) { return values[random() % values.size()]; };
  for (int round = 0; round < 2000; ++round) {
    Layout layout = layout_of(draw({1, 2, 3, 4, 8}), draw({1, 1, 2, 3}), draw({1, 2, 4, 5, 6, 16}), draw({1, 2, 3, 4}));
    std::shuffle(layout.placement.begin(), layout.placement.end(), random);
    const RankGrid grid(layout);
    const int node = draw({2, 4, 6, 8});
    const Cluster cluster = nodes_of((grid.ranks() + node - 1) / node, node);
    for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline}) {
      std::vector<std::vector<int>> groups;
      for (int rank = 0; rank < grid.ranks(); ++rank) groups.push_back(grid.group_of(rank, axis));
      const Counted expected = worst_of(groups, node);
      const GroupPlacement placement = grid.placement(axis, cluster);
      ASSERT_EQ(placement.nodes, expected.nodes) << "round " << round;
      ASSERT_EQ(placement.ranks_per_node, expected.fullest) << "round " << round;
    }
    // Every ep-th rank of the plane of context and data ranks, starting from each of the first ep.
    const int plane = layout.cp * layout.dp;
    const int ep = layout.dp % 2 == 0 ? 2 * layout.cp : 1;
    std::vector<std::vector<int>> groups;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      if (grid.coordinate(rank, Axis::kContext) > 0 || grid.coordinate(rank, Axis::kData) > 0) continue;
      for (int first = 0; first < ep; ++first) {
        groups.emplace_back();
        for (int position = first; position < plane; position += ep) {
          const int row = grid.neighbour(rank, Axis::kContext, position % layout.cp);
          groups.back().push_back(grid.neighbour(row, Axis::kData, position / layout.cp));
        }
      }
    }
    const Counted expected = worst_of(groups, node);
    const GroupPlacement replicas = grid.expert_replica_placement(ep, cluster);
    ASSERT_EQ(replicas.ranks, plane / ep);
    ASSERT_EQ(replicas.nodes, expected.nodes) << "round " << round;
    ASSERT_EQ(replicas.ranks_per_node, expected.fullest) << "round " << round;
  }
}

TEST(RankGrid, FollowsUnevenNodes) {
  // Seven pipeline ranks over 4 + 3 devices: only the hop from the fourth to the fifth leaves a node.
  const RankGrid pipeline(layout_of(1, 1, 1, 7));
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(pipeline.pipeline_hop_crosses_nodes(rank, rank + 1, uneven_nodes({4, 3})), rank == 3) << rank;
  }
  // tp 2 over 3 + 5 devices: ranks 2 and 3, the second pair, are on different nodes.
  const GroupPlacement tensor = RankGrid(layout_of(2, 1, 4, 1)).placement(Axis::kTensor, uneven_nodes({3, 5}));
  EXPECT_EQ(tensor.nodes, 2);
  EXPECT_EQ(tensor.ranks_per_node, 1);
  EXPECT_EQ(RankGrid(layout_of(2, 1, 4, 1)).placement(Axis::kTensor, uneven_nodes({2, 6})).nodes, 1);
}

TEST(RankGrid, ExpertRanksAreNeighboursInTheDataPlane) {
  // tp 2 on nodes of 8: four data ranks per node, so eight expert ranks span two nodes.
  const RankGrid grid(layout_of(2, 1, 16, 1));
  const GroupPlacement experts = grid.expert_placement(8, nodes_of(4, 8));
  EXPECT_EQ(experts.ranks, 8);
  EXPECT_EQ(experts.nodes, 2);
  EXPECT_EQ(experts.ranks_per_node, 4);
  EXPECT_EQ(experts.groups_sharing_nics, 2);
  const GroupPlacement replicas = grid.expert_replica_placement(8, nodes_of(4, 8));
  EXPECT_EQ(replicas.ranks, 2);
  EXPECT_EQ(replicas.nodes, 2);
  EXPECT_EQ(replicas.ranks_per_node, 1);
  // Context ranks are the innermost of the plane.
  const GroupPlacement contexts = RankGrid(layout_of(1, 4, 4, 1)).expert_placement(4, nodes_of(4, 4));
  EXPECT_EQ(contexts.nodes, 1);
}

}  // namespace
}  // namespace flopcast
