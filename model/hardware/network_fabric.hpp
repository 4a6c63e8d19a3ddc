#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/hardware/cluster.hpp"
#include "model/hardware/fabric.hpp"
#include "model/hardware/network.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// The links between a cluster's nodes, sized and routed as its network specifies. Every card, and every cable of a
/// tree or of rails, carries nic_bandwidth · nic_efficiency in each direction, or the network's card_bandwidth.
///
/// star       one non-blocking switch: only cards are shared
/// tree       all cards of a tier's nodes are on one leaf; the next tier connects the leaves
/// rail       card i of each of a tier's nodes is on leaf i; leaves are connected as in a tree
/// torus, dragonfly   fabric.hpp: dimension order and minimal routes; a host is a node with all its cards combined
/// links      cables between nodes and switches; routes with the fewest hops, the first such in list order
///
/// A switch's upward bandwidth is the bandwidth from below divided by its tier's oversubscription; the switches above
/// the top tier never block. Names: "node5.card2.up", "node5.card2.down"; "tier0.3.up" and "tier0.3.down" are the
/// combined cables of switch 3 of the lowest tier if messages are spread, otherwise "tier0.3.up.0", … for each cable.
/// With rails, switch s · cards + i is leaf i of segment s. A host sends and receives at its cards' rate
/// simultaneously. Not modelled: buffers, packets, congestion control (DCQCN, PFC, incast collapse), routes that change
/// under load.
class NetworkFabric {
 public:
  /// Expects a cluster whose network is not none. Throws ConfigError about fields under "cluster.network", without a
  /// location.
  explicit NetworkFabric(const Cluster& cluster);

  const std::vector<FabricLink>& links() const { return fabric_.links; }
  /// Bytes per second, less degradation and background traffic.
  double capacity(std::uint32_t link) const { return capacity_[link]; }
  /// True for a link between a host and its first switch. False if there are no switches, and for a list of cables,
  /// whose bandwidths are given individually.
  bool is_card(std::uint32_t link) const {
    return network_->topology != Topology::kLinks && fabric_.links[link].name.rfind("node", 0) == 0;
  }
  /// Cards per node; 1 if a host is a whole node.
  int cards_per_node() const { return cards_; }
  /// Appends the links from a card of one node to a card of another; nodes are numbered as in the job. `connection`
  /// distinguishes the queue pairs between the cards.
  void append_route(int from_node, int from_card, int to_node, int to_card, std::uint64_t connection,
                    std::vector<std::uint32_t>& way) const;
  /// True if messages to another card first move to that card's GPU inside the node (PXN).
  bool keeps_rails() const { return keeps_rails_; }
  /// Position in the fabric of a node of the job.
  int place_of(int node) const { return place_[static_cast<std::size_t>(node)]; }
  /// Assigns other nodes of the fabric to the job, the same number as before.
  void take(const std::vector<int>& places);

 private:
  void size_nodes();
  void place_nodes();
  void build_tree();
  void build_shape();
  void build_cables();
  void name_tree(const std::vector<TreeLevel>& levels);
  void degrade();
  void add_background();
  std::vector<std::uint32_t> links_named(const std::string& name) const;
  std::optional<int> node_named(const std::string& name) const;
  std::vector<std::pair<std::uint32_t, double>> loads_of(const BackgroundTraffic& traffic, std::size_t index) const;
  int host_at(int place, int card) const;
  int host_of(int node, int card) const { return host_at(place_of(node), card); }

  int nodes_ = 1;  // of the fabric
  int cards_ = 1;
  int segment_ = 0;  // nodes per segment of rails; 0: hosts are cards, node by node
  bool keeps_rails_ = true;
  double card_rate_ = 0.0;
  Fabric fabric_;
  std::vector<double> capacity_;
  std::vector<int> place_;
  const Cluster* cluster_;
  const Network* network_;
};

/// One choice of a job's nodes among the free nodes of a fabric.
struct Allocation {
  std::string name;        ///< how they were chosen
  std::vector<int> nodes;  ///< nodes of the fabric, in the order of the job's nodes
  int of = 0;              ///< number of nodes in the fabric
};
/// The standard choices of as many nodes as the cluster has, without duplicates:
///   as listed  the first ones, in the order given
///   packed     below as few switches of the top tier as possible, then of the next: the switches with the most free
///              nodes are taken whole, the remainder comes from the smallest one that has enough
///   spread     as evenly over the switches of the lowest tier as the free nodes allow
/// Packed and spread nodes are in fabric order. The units of a dragonfly are its routers, chassis and groups, those of
/// a torus its lines and planes. If there are no such units, or no more free nodes than needed, only the first choice
/// is returned. Degraded links and background traffic are ignored. Expects distinct nodes and a network with a
/// topology. Throws ConfigError if too few nodes are free.
std::vector<Allocation> standard_allocations(const Cluster& cluster, const std::vector<int>& free);
/// Number of nodes in the fabric: the maximum of network.nodes, the cluster's nodes, the nodes its allocation refers
/// to, and those of its shape.
int fabric_nodes(const Cluster& cluster);

/// The most switches on a route between two nodes of a cluster with a network; with a list of cables, on routes to node
/// 0.
int most_hops(const Cluster& cluster);

// For the files that build fabrics and choose their nodes.

/// Throws ConfigError about that key of "cluster.network".
[[noreturn]] void fail_network(std::string_view key, const std::string& problem, const std::string& help);
/// The tiers of a tree or rails, or the default one if the network specifies none.
std::vector<NetworkTier> tiers_of(const Network& network, int cards);

/// Routes over a list of cables between named nodes and switches.
class CableRoutes {
 public:
  CableRoutes(Fabric& fabric, const std::vector<NetworkCable>& cables, int nodes);

  /// Distances to a node are computed together, by breadth-first search from it, and cached.
  std::vector<std::uint32_t> operator()(int from, int to, std::uint64_t connection);

  int longest();

 private:
  int place_of(const std::string& name);
  void add(Fabric& fabric, std::string name, int from, int to, BytesPerSecond bandwidth);
  std::vector<int>& distances_to(int to);

  int nodes_;
  std::map<std::string, int> places_;
  std::vector<std::vector<std::uint32_t>> out_;
  std::vector<std::vector<std::uint32_t>> in_;
  std::vector<int> starts_;  // by link
  std::vector<int> ends_;
  std::vector<std::vector<int>> way_back_;  // by node: hops to it from every node and switch
};

}  // namespace flopcast
