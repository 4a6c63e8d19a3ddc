#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// What the ranks of a group do together. realrun/transport/transport.hpp says what each leaves where, and
/// model/cost/collectives.hpp what it costs; a barrier sends nothing, and nobody prices it.
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

/// How a message finds its way among cables that lead to the same place.
enum class Routing {
  kSpread,       ///< over all of them evenly: adaptive routing, packet spraying
  kDestination,  ///< d-mod-k, see fabric.hpp
  kHash,         ///< each connection over one, drawn by a hash
};
template <>
struct EnumNames<Routing> {
  static constexpr std::string_view kNames[] = {"spread", "dst", "hash"};
};

/// Switches that join so many nodes, and how many times more bytes a second come up to one than leave it upward.
struct NetworkTier {
  int nodes = 1;
  double oversubscription = 1.0;
};

/// A link at a share of its bandwidth; 0 is dead, where messages are spread beside it.
struct DegradedLink {
  std::string link;
  double share = 1.0;
};

/// What others send, whatever the job does: from switch to switch of a tree or of rails, or from node to node of the
/// fabric, evenly over their cards and the ways of their messages.
struct BackgroundTraffic {
  std::string from;
  std::string to;
  BytesPerSecond rate;
};

/// A cable of topology links, each way: between nodes, "node0", and switches, any other name.
struct NetworkCable {
  std::string from;
  std::string to;
  BytesPerSecond bandwidth;
};

/// What a job says of the links between its nodes; network_fabric.hpp builds them. kNone: every group of ranks has its
/// links to itself.
struct Network {
  std::string preset;  ///< of the catalogue, where it is one
  Topology topology = Topology::kTree;
  std::vector<NetworkTier> tiers;          ///< of a tree or rails, from the nodes up; empty: one of 64-port leaves
  std::optional<double> oversubscription;  ///< of the highest tier, in place of what that says
  Routing routing = Routing::kSpread;
  int queue_pairs = 1;                 ///< of a pair of cards, each with a path of its own where paths are hashed
  int seed = 1;                        ///< of the hash
  Seconds hop_latency;                 ///< of each switch on the longest way, added to a message's latency
  bool pxn = true;                     ///< rails: see fabric.hpp
  bool sharp = false;                  ///< switches add up all-reduces
  std::string allocation = "compact";  ///< or scattered:SEED; which of the fabric's nodes the job has
  std::vector<int> allocated;          ///< the same one by one; then `allocation` is empty
  std::optional<int> nodes;            ///< of the whole fabric; nothing: as many as the job has
  std::vector<int> shape;              ///< torus: sizes; dragonfly: groups, chassis, routers, nodes of a router
  BytesPerSecond card_bandwidth;       ///< of a card's link; zero: what collectives reach on it
  BytesPerSecond link_bandwidth;       ///< of torus and dragonfly between switches; zero: all of a node's cards
  std::vector<NetworkCable> cables;
  std::vector<DegradedLink> degraded;
  std::vector<BackgroundTraffic> background;
};

}  // namespace flopcast
