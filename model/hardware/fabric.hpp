#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/units/quantity.hpp"

namespace flopcast {

/// One direction of a cable, or of several side by side that share what they carry.
struct FabricLink {
  std::string name;  ///< "up3", "leaf 0 to spine 1"
  BytesPerSecond bandwidth;
};

/// Links between hosts, and the links that a message from one host to another takes. A host is what has one port of its
/// own: a node, a network card of it, or a GPU with both. Pure: what flows do to each other on links is sim/flow's.
/// Left out: latency, buffers, routes that change under load.
struct Fabric {
  int hosts = 0;
  std::vector<FabricLink> links;
  /// Links by their place in `links`, in the order of the way; none from a host to itself. `flow` tells flows between
  /// the same hosts apart (queue pairs) where routes are hashed.
  std::function<std::vector<std::uint32_t>(int from, int to, std::uint64_t flow)> route;
};

/// Hosts round one switch that never blocks: `up` out of each, `down` into it.
Fabric star_fabric(int hosts, BytesPerSecond up, BytesPerSecond down);

/// One level of a tree, from the hosts up.
struct TreeLevel {
  int down = 1;  ///< children of each switch: hosts at the lowest level, above it switches of the level below
  int up = 1;    ///< parents of each such child
  BytesPerSecond bandwidth;  ///< of the link from a child to one parent, each way
};
enum class TreeRouting {
  kDestination,  ///< d-mod-k: at each level the port (to / product of the lower `up`) mod up (Zahavi, Fat-trees routing
                 ///< and node ordering providing contention free traffic, 2010)
  kHash,         ///< the port that a hash of from, to, flow, level and seed says
};
/// A fat tree (Öhring et al., On generalized fat trees, 1995): leaves and spines, pods of them.
Fabric tree_fabric(const std::vector<TreeLevel>& levels, TreeRouting routing, std::uint64_t seed = 0);

/// A grid whose lines are rings: dimension order, each ring the shorter way round, upward where both are as long.
Fabric torus_fabric(const std::vector<int>& sizes, BytesPerSecond bandwidth);

/// Groups of chassis of routers (Kim et al., Technology-driven, highly-scalable dragonfly topology, 2008, as Cray's
/// Aries has it): every pair of routers of a chassis is joined (green), the routers of one place of all chassis
/// (black), every pair of groups (blue): the link between groups i and j ends at router j of group i and router i of
/// group j. Minimal routes: within a group green, then black.
struct Dragonfly {
  int groups = 1;
  int chassis = 1;  ///< of a group
  int routers = 1;  ///< of a chassis
  int nodes = 1;    ///< of a router
  BytesPerSecond node_bandwidth;
  BytesPerSecond green_bandwidth;
  BytesPerSecond black_bandwidth;
  BytesPerSecond blue_bandwidth;
};
/// A group has at least as many routers as there are groups (InternalError).
Fabric dragonfly_fabric(const Dragonfly& shape);

/// Nodes of GPUs with a card for each GPU; card g of all nodes of a segment on leaf g of the segment, and from each
/// leaf a link to each of `spines`. Hosts are GPUs, node by node. Spines by destination, as in a tree.
struct RailShape {
  int nodes = 1;
  int gpus_per_node = 1;
  int nodes_per_segment = 1;
  int spines = 1;
  /// To another rail over NVLink and the GPU of that rail (PXN: NVIDIA, Doubling all2all performance with NCCL 2.12,
  /// 2022); otherwise over one's own card and a spine.
  bool pxn = true;
  BytesPerSecond nvlink_bandwidth;
  BytesPerSecond card_bandwidth;
  BytesPerSecond uplink_bandwidth;  ///< of a leaf to one spine
};
Fabric rail_fabric(const RailShape& shape);

}  // namespace flopcast
