#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/units/quantity.hpp"

namespace flopcast {

/// One direction of a cable, or of several parallel cables that share their load.
struct FabricLink {
  std::string name;  ///< "up3", "leaf 0 to spine 1"
  BytesPerSecond bandwidth;
};

/// Links between hosts, and the route of a message from one host to another. A host is anything with its own port: a
/// node, one of its network cards, or a GPU with both. Static: contention between flows is modelled in sim/flow. Not
/// modelled: latency, buffers, routes that change under load.
struct Fabric {
  int hosts = 0;
  std::vector<FabricLink> links;
  /// Route as indices into `links`, in order; empty from a host to itself. `flow` distinguishes flows between the same
  /// hosts (queue pairs) where routes are hashed.
  std::function<std::vector<std::uint32_t>(int from, int to, std::uint64_t flow)> route;
};

/// Hosts around one non-blocking switch: `up` out of each host, `down` into it.
Fabric star_fabric(int hosts, BytesPerSecond up, BytesPerSecond down);

/// One level of a tree, counted from the hosts.
struct TreeLevel {
  int down = 1;  ///< children of each switch: hosts at the lowest level, switches of the level below otherwise
  int up = 1;    ///< parents of each child
  BytesPerSecond bandwidth;  ///< from a child to one parent, in each direction
};
enum class TreeRouting {
  kDestination,  ///< d-mod-k: at each level the port (to / product of the lower `up`) mod up (Zahavi, Fat-trees routing
                 ///< and node ordering providing contention free traffic, 2010)
  kHash,         ///< the port given by a hash of from, to, flow, level and seed
};
/// A fat tree (Öhring et al., On generalized fat trees, 1995) of leaves and spines, or pods of them.
Fabric tree_fabric(const std::vector<TreeLevel>& levels, TreeRouting routing, std::uint64_t seed = 0);

/// A grid whose lines are rings. Routes follow dimension order, each ring the shorter way, upward in a tie.
Fabric torus_fabric(const std::vector<int>& sizes, BytesPerSecond bandwidth);

/// Groups of chassis of routers (Kim et al., Technology-driven, highly-scalable dragonfly topology, 2008, as in Cray's
/// Aries). Links connect every pair of routers of a chassis (green), the routers at the same position in all chassis of
/// a group (black), and every pair of groups (blue): the link between groups i and j connects router j of group i and
/// router i of group j. Minimal routes: within a group green, then black.
struct Dragonfly {
  int groups = 1;
  int chassis = 1;  ///< per group
  int routers = 1;  ///< per chassis
  int nodes = 1;    ///< per router
  BytesPerSecond node_bandwidth;
  BytesPerSecond green_bandwidth;
  BytesPerSecond black_bandwidth;
  BytesPerSecond blue_bandwidth;
};
/// A group must have at least as many routers as there are groups (InternalError).
Fabric dragonfly_fabric(const Dragonfly& shape);

/// Nodes with one network card per GPU. Card g of all nodes of a segment is on leaf g of the segment; each leaf has a
/// link to each of `spines`. Hosts are GPUs, node by node. The destination selects the spine, as in a tree.
struct RailShape {
  int nodes = 1;
  int gpus_per_node = 1;
  int nodes_per_segment = 1;
  int spines = 1;
  /// Reach another rail over NVLink and the GPU on that rail (PXN: NVIDIA, Doubling all2all performance with NCCL 2.12,
  /// 2022); otherwise over the sender's own card and a spine.
  bool pxn = true;
  BytesPerSecond nvlink_bandwidth;
  BytesPerSecond card_bandwidth;
  BytesPerSecond uplink_bandwidth;  ///< from a leaf to one spine
};
Fabric rail_fabric(const RailShape& shape);

}  // namespace flopcast
