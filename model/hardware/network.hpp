#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// Operation performed by the ranks of a group. realrun/transport/transport.hpp defines where the results end up,
/// model/cost/collectives.hpp the cost; a barrier sends no data and is not priced.
enum class CollectiveKind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kBarrier };
template <>
struct EnumNames<CollectiveKind> {
  static constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                "all_to_all", "broadcast",  "barrier"};
};

enum class Topology { kNone, kStar, kTree, kRail, kDragonfly, kTorus, kLinks };
template <>
struct EnumNames<Topology> {
  static constexpr std::string_view kNames[] = {"none", "star", "tree", "rail", "dragonfly", "torus", "links"};
};

/// How a message selects among parallel cables.
enum class Routing {
  kSpread,       ///< evenly over all of them: adaptive routing, packet spraying
  kDestination,  ///< d-mod-k, see fabric.hpp
  kHash,         ///< each connection over one cable, selected by a hash
};
template <>
struct EnumNames<Routing> {
  static constexpr std::string_view kNames[] = {"spread", "dst", "hash"};
};

/// Switches that connect `nodes` nodes each, and the ratio of their downward to their upward bandwidth.
struct NetworkTier {
  int nodes = 1;
  double oversubscription = 1.0;
};

/// A link with a fraction of its bandwidth; 0 means dead, while messages spread over parallel cables avoid it.
struct DegradedLink {
  std::string link;
  double share = 1.0;
};

/// Traffic of other jobs, independent of this one: between two switches of a tree or of rails, or between two nodes of
/// the fabric, evenly over their cards and routes.
struct BackgroundTraffic {
  std::string from;
  std::string to;
  BytesPerSecond rate;
};

/// A cable of topology links, usable in both directions: between nodes ("node0") and switches (any other name).
struct NetworkCable {
  std::string from;
  std::string to;
  BytesPerSecond bandwidth;
};

/// A job's description of the links between its nodes, from which network_fabric.hpp builds them. kNone: every group of
/// ranks has its links to itself.
struct Network {
  std::string preset;  ///< catalogue name, if any
  Topology topology = Topology::kTree;
  std::vector<NetworkTier> tiers;          ///< of a tree or rails, from the nodes up; empty: one of 64-port leaves
  std::optional<double> oversubscription;  ///< of the top tier; overrides `tiers`
  Routing routing = Routing::kSpread;
  int queue_pairs = 1;                 ///< per pair of cards; each has its own path if routes are hashed
  int seed = 1;                        ///< for the hash
  Seconds hop_latency;                 ///< per switch on the longest path, added to a message's latency
  bool pxn = true;                     ///< rails: see fabric.hpp
  bool sharp = false;                  ///< switches reduce the data of all-reduces
  std::string allocation = "compact";  ///< or scattered:SEED; selects the job's nodes in the fabric
  std::vector<int> allocated;          ///< the job's nodes as a list; `allocation` is then empty
  std::optional<int> nodes;            ///< of the whole fabric; absent: as many as the job has
  std::vector<int> shape;              ///< torus: sizes; dragonfly: groups, chassis, routers, nodes per router
  BytesPerSecond card_bandwidth;       ///< bandwidth of a card's link; zero: what collectives reach on it
  BytesPerSecond link_bandwidth;       ///< between switches of torus and dragonfly; zero: that of all cards of a node
  std::vector<NetworkCable> cables;
  std::vector<DegradedLink> degraded;
  std::vector<BackgroundTraffic> background;
};

}  // namespace flopcast
