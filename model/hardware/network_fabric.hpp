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

/// The links between a cluster's nodes, in the sizes and with the routes that its network names. Every card, and every
/// cable of a tree or of rails, carries nic_bandwidth · nic_efficiency each way, or the network's card_bandwidth.
///
/// star       one switch that never blocks: only cards are shared
/// tree       the cards of a tier's nodes on one leaf; leaves joined by the next tier
/// rail       card i of a tier's nodes on leaf i of it; leaves joined as in a tree
/// torus, dragonfly   fabric.hpp: dimension order and minimal routes; a host is a node with all its cards together
/// links      cables between nodes and switches, ways of the fewest hops, the first such in the order of the list
///
/// A switch of a tier has as many bytes a second up as come from below, over its oversubscription; what the highest
/// tier's switches share above them never blocks. Names: "node5.card2.up", "node5.card2.down"; "tier0.3.up" and
/// "tier0.3.down" of switch 3 of the lowest tier, all its cables together where messages are spread, otherwise cable by
/// cable "tier0.3.up.0", …. Of rails, switch s · cards + i is leaf i of segment s.
/// A host sends and receives at its cards' rate at once. Left out: buffers, packets, congestion control (DCQCN, PFC,
/// incast collapse), routes that change under load.
class NetworkFabric {
 public:
  /// Of a cluster with a network that is not none. Throws ConfigError about fields under "cluster.network", without a
  /// place.
  explicit NetworkFabric(const Cluster& cluster);

  const std::vector<FabricLink>& links() const { return fabric_.links; }
  /// Bytes a second, less what is degraded and what others send.
  double capacity(std::uint32_t link) const { return capacity_[link]; }
  /// Between a host and its first switch. None where there are no switches, nor of a list of cables, which says what
  /// each carries.
  bool is_card(std::uint32_t link) const {
    return network_->topology != Topology::kLinks && fabric_.links[link].name.rfind("node", 0) == 0;
  }
  /// Of a node: 1 where a host is a node.
  int cards_per_node() const { return cards_; }
  /// Appends the links from a card of one node to a card of another, nodes as the job counts them. `connection` tells
  /// the queue pairs between them apart.
  void append_route(int from_node, int from_card, int to_node, int to_card, std::uint64_t connection,
                    std::vector<std::uint32_t>& way) const;
  /// Whether what is for another card first changes to that card inside its node (PXN).
  bool keeps_rails() const { return keeps_rails_; }
  /// Of a node of the job, its place in the fabric.
  int place_of(int node) const { return place_[static_cast<std::size_t>(node)]; }
  /// Gives the job other nodes of the fabric, as many as it has.
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
  int segment_ = 0;  // nodes of a segment of rails; 0: hosts are cards, node by node
  bool keeps_rails_ = true;
  double card_rate_ = 0.0;
  Fabric fabric_;
  std::vector<double> capacity_;
  std::vector<int> place_;
  const Cluster* cluster_;
  const Network* network_;
};

/// One way to take a job's nodes from those of a fabric that are free.
struct Allocation {
  std::string name;        ///< how they were taken
  std::vector<int> nodes;  ///< of the fabric, in the order of the job's
  int of = 0;              ///< nodes that the fabric has
};
/// The usual ways to take as many nodes as the cluster has, each once:
///   as listed  the first, in the order given
///   packed     by the fabric's place, under few switches of its highest tier, then of the next: the switches with the
///              most free nodes are taken whole, the rest comes from one that is just large enough
///   spread     by the fabric's place, as evenly over the switches of the lowest tier as what is free allows
/// Units of a dragonfly are its routers, chassis and groups, of a torus its lines and planes. Without such units, and
/// where no more are free than are taken, there is only the first. None looks at degraded links or background. Expects
/// nodes that differ, and a network that names a topology. Throws ConfigError where too few are free.
std::vector<Allocation> usual_allocations(const Cluster& cluster, const std::vector<int>& free);
/// Nodes of the fabric that a cluster's network names: its own, the cluster's, as many as its allocation reaches, or
/// those of its shape.
int fabric_nodes(const Cluster& cluster);

/// The most switches on a way between two nodes of a cluster with a network; of a list of cables, from the first node.
int most_hops(const Cluster& cluster);

// For the files that build fabrics and take nodes from them.

/// Throws ConfigError about that key of "cluster.network".
[[noreturn]] void fail_network(std::string_view key, const std::string& problem, const std::string& help);
/// The tiers that a tree or rails have, with the usual one where the network names none.
std::vector<NetworkTier> tiers_of(const Network& network, int cards);

/// Nodes and switches by name, and the cables at each.
class CableRoutes {
 public:
  CableRoutes(Fabric& fabric, const std::vector<NetworkCable>& cables, int nodes);

  /// Ways to one node are found at once, outward from it, and kept.
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
  std::vector<std::vector<int>> way_back_;  // by node, the hops from every place to it
};

}  // namespace flopcast
