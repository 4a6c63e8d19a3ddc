#include "model/hardware/network_fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <memory>
#include <queue>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr int kMostHosts = 4'000'000;
constexpr int kMostLinks = 20'000'000;
constexpr int kLeafPorts = 64;  // of a 400 Gbit/s switch, 2023; half of them face down

int up_to_whole(int number, int parts) {
  return (number + parts - 1) / parts;
}

}  // namespace

void fail_network(std::string_view key, const std::string& problem, const std::string& help) {
  throw ConfigError({fmt::format("cluster.network{}{}", key.empty() ? "" : ".", key), problem, "", help});
}

std::vector<NetworkTier> tiers_of(const Network& network, int cards) {
  std::vector<NetworkTier> tiers = network.tiers;
  if (tiers.empty()) {
    const int down = kLeafPorts / 2;
    tiers.push_back({network.topology == Topology::kRail ? down : std::max(1, down / cards), 1.0});
  }
  if (network.oversubscription) tiers.back().oversubscription = *network.oversubscription;
  for (std::size_t tier = 1; tier < tiers.size(); ++tier) {
    const int below = tiers[tier - 1].nodes;
    if (tiers[tier].nodes % below == 0 && tiers[tier].nodes > below) continue;
    fail_network(fmt::format("tiers.{}.nodes", tier),
                 fmt::format("{} nodes are not a multiple of the {} in the tier below", tiers[tier].nodes, below),
                 fmt::format("use a multiple, such as {}", 2 * below));
  }
  return tiers;
}

NetworkFabric::NetworkFabric(const Cluster& cluster) : cluster_(&cluster), network_(&*cluster.network) {
  FLOPCAST_CHECK(network_->topology != Topology::kNone);
  cards_ = cluster.nics_per_node;
  card_rate_ = network_->card_bandwidth.value() > 0.0 ? network_->card_bandwidth.value()
                                                      : cluster.nic_bandwidth.value() * cluster.nic_efficiency;
  size_nodes();
  switch (network_->topology) {
    case Topology::kNone:
      break;
    case Topology::kStar:
      fabric_ = star_fabric(nodes_ * cards_, BytesPerSecond(card_rate_), BytesPerSecond(card_rate_));
      for (int host = 0; host < fabric_.hosts; ++host) {
        const std::string card = fmt::format("node{}.card{}", host / cards_, host % cards_);
        fabric_.links[static_cast<std::size_t>(host)].name = card + ".up";
        fabric_.links[static_cast<std::size_t>(fabric_.hosts + host)].name = card + ".down";
      }
      break;
    case Topology::kTree:
    case Topology::kRail:
      build_tree();
      break;
    case Topology::kDragonfly:
    case Topology::kTorus:
      build_shape();
      break;
    case Topology::kLinks:
      build_cables();
      break;
  }
  for (const FabricLink& link : fabric_.links) capacity_.push_back(link.bandwidth.value());
  place_nodes();
  degrade();
  add_background();
}

// The fabric has at least the job's nodes, and as many as the job specifies for it.
void NetworkFabric::size_nodes() {
  nodes_ = cluster_->nodes;
  if (network_->nodes) {
    if (*network_->nodes < nodes_) {
      fail_network("nodes", fmt::format("the fabric has {} nodes, but the cluster has {}", *network_->nodes, nodes_),
                   "omit nodes, or increase it");
    }
    nodes_ = *network_->nodes;
  }
  for (const int place : network_->allocated) nodes_ = std::max(nodes_, place + 1);
  if (static_cast<std::int64_t>(nodes_) * cards_ > kMostHosts) {
    fail_network("", fmt::format("{} nodes with {} cards each are more than can be simulated", nodes_, cards_),
                 fmt::format("use at most {} cards", kMostHosts));
  }
}

void NetworkFabric::build_tree() {
  const bool rails = network_->topology == Topology::kRail;
  const std::vector<NetworkTier> tiers = tiers_of(*network_, cards_);
  keeps_rails_ = !rails || network_->pxn;
  if (rails) segment_ = tiers.front().nodes;
  const bool spread = network_->routing == Routing::kSpread;
  std::vector<TreeLevel> levels;
  const int leaf_hosts = rails ? tiers.front().nodes : tiers.front().nodes * cards_;
  levels.push_back({leaf_hosts, 1, BytesPerSecond(card_rate_)});
  double down = leaf_hosts * card_rate_;  // bandwidth of each child of this level's switches
  std::int64_t twins = 1;
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    const bool last = tier + 1 == tiers.size();
    const int top = up_to_whole(nodes_, tiers[tier].nodes);
    int children = last ? top : tiers[tier + 1].nodes / tiers[tier].nodes;
    if (tier == 0 && rails) children *= cards_;
    if (last && children == 1) break;
    const double up = down / tiers[tier].oversubscription;
    const double cables = std::max(1.0, std::round(up / static_cast<double>(twins) / card_rate_));
    const auto ports = spread ? 1 : static_cast<std::int64_t>(cables);
    if (twins * ports * top * (rails ? cards_ : 1) > kMostLinks) {
      fail_network("routing", "with single cables, the fabric has more links than can be simulated",
                   "use routing spread");
    }
    levels.push_back({children, static_cast<int>(ports), BytesPerSecond(up / static_cast<double>(twins * ports))});
    twins *= ports;
    down = up * children;
  }
  const TreeRouting routing = network_->routing == Routing::kHash ? TreeRouting::kHash : TreeRouting::kDestination;
  fabric_ = tree_fabric(levels, routing, static_cast<std::uint64_t>(network_->seed));
  name_tree(levels);
}

// tree_fabric numbers a level's links by child and port, up before down.
void NetworkFabric::name_tree(const std::vector<TreeLevel>& levels) {
  std::size_t next = 0;
  int subtrees = fabric_.hosts;
  int twins = 1;
  const bool spread = network_->routing == Routing::kSpread;
  for (std::size_t index = 0; index < levels.size(); ++index) {
    const int of_subtree = twins * levels[index].up;
    for (int link = 0; link < subtrees * of_subtree; ++link) {
      const int child = link / of_subtree;
      std::string stem;
      std::string port;
      if (index == 0) {
        const int node = segment_ == 0 ? child / cards_ : child / (segment_ * cards_) * segment_ + child % segment_;
        const int card = segment_ == 0 ? child % cards_ : child / segment_ % cards_;
        stem = fmt::format("node{}.card{}", node, card);
      } else {
        stem = fmt::format("tier{}.{}", index - 1, child);
        if (!spread) port = fmt::format(".{}", link % of_subtree);
      }
      fabric_.links[next++].name = fmt::format("{}.up{}", stem, port);
      fabric_.links[next++].name = fmt::format("{}.down{}", stem, port);
    }
    subtrees /= levels[index].down;
    twins = of_subtree;
  }
  FLOPCAST_CHECK(next == fabric_.links.size());
}

void NetworkFabric::build_shape() {
  const std::vector<int>& shape = network_->shape;
  const BytesPerSecond node = BytesPerSecond(card_rate_ * cards_);
  const BytesPerSecond between = network_->link_bandwidth.value() > 0.0 ? network_->link_bandwidth : node;
  cards_ = 1;
  std::int64_t hosts = 1;
  for (const int size : shape) hosts = std::min<std::int64_t>(kMostHosts + 1, hosts * size);
  const bool torus = network_->topology == Topology::kTorus;
  if (shape.empty() || (!torus && shape.size() != 4)) {
    fail_network("shape", shape.empty() ? "is missing" : fmt::format("lists {} numbers", shape.size()),
                 torus ? "list the sizes of a torus, such as [8, 8]"
                       : "list four numbers: groups, chassis per group, routers per chassis, nodes per router");
  }
  if (hosts < nodes_ || hosts > kMostHosts) {
    fail_network("shape",
                 fmt::format("has {} nodes, but the job needs {}",
                             hosts > kMostHosts ? "too many" : std::to_string(hosts), nodes_),
                 fmt::format("use sizes whose product is at least {}", nodes_));
  }
  nodes_ = static_cast<int>(hosts);
  if (torus) {
    fabric_ = torus_fabric(shape, between);
    return;
  }
  if (shape[0] > 1 && shape[1] * shape[2] < shape[0]) {
    fail_network("shape",
                 fmt::format("the {} routers per group are fewer than the {} groups", shape[1] * shape[2], shape[0]),
                 "each group needs one router per other group");
  }
  fabric_ = dragonfly_fabric({shape[0], shape[1], shape[2], shape[3], node, between, between, between});
  for (int host = 0; host < fabric_.hosts; ++host) {
    fabric_.links[static_cast<std::size_t>(host)].name = fmt::format("node{}.up", host);
    fabric_.links[static_cast<std::size_t>(fabric_.hosts + host)].name = fmt::format("node{}.down", host);
  }
}

void NetworkFabric::build_cables() {
  if (network_->cables.empty()) {
    fail_network("links", "is missing",
                 R"(use a list such as [{"from": "node0", "to": "leaf0", "bandwidth": "50GB/s"}])");
  }
  cards_ = 1;
  auto routes = std::make_shared<CableRoutes>(fabric_, network_->cables, nodes_);
  fabric_.route = [routes](int from, int to, std::uint64_t connection) { return (*routes)(from, to, connection); };
  for (int node = 1; node < nodes_; ++node) (*routes)(node, 0, 0);  // fails for nodes without cables
}

int NetworkFabric::host_at(int place, int card) const {
  if (segment_ == 0) return place * cards_ + card;
  return (place / segment_ * cards_ + card) * segment_ + place % segment_;
}

void NetworkFabric::append_route(int from_node, int from_card, int to_node, int to_card, std::uint64_t connection,
                                 std::vector<std::uint32_t>& way) const {
  const std::vector<std::uint32_t> route =
      fabric_.route(host_of(from_node, from_card), host_of(to_node, to_card), connection);
  way.insert(way.end(), route.begin(), route.end());
}

// The link of that name, or all cables of a link.
std::vector<std::uint32_t> NetworkFabric::links_named(const std::string& name) const {
  std::vector<std::uint32_t> found;
  const std::string stem = name + ".";
  for (std::uint32_t link = 0; link < fabric_.links.size(); ++link) {
    const std::string& known = fabric_.links[link].name;
    if (known == name) return {link};
    if (known.rfind(stem, 0) == 0) found.push_back(link);
  }
  return found;
}

void NetworkFabric::degrade() {
  for (std::size_t index = 0; index < network_->degraded.size(); ++index) {
    const DegradedLink& degraded = network_->degraded[index];
    const auto said = network_->degraded.begin() + static_cast<std::ptrdiff_t>(index);
    if (std::any_of(network_->degraded.begin(), said,
                    [&degraded](const DegradedLink& other) { return other.link == degraded.link; })) {
      fail_network(fmt::format("degraded.{}.link", index), fmt::format("{} is given twice", degraded.link),
                   "list each link once");
    }
    std::vector<std::uint32_t> links = links_named(degraded.link);
    double cables = 1.0;  // number of cables that the link represents, one of which is degraded
    const std::size_t dot = degraded.link.rfind('.');
    const bool of_trunk = links.empty() && dot != std::string::npos && network_->routing == Routing::kSpread;
    if (of_trunk) {
      links = links_named(degraded.link.substr(0, dot));
      int port = -1;
      const char* const end = degraded.link.data() + degraded.link.size();
      const auto read = std::from_chars(degraded.link.data() + dot + 1, end, port);
      const bool one_trunk = links.size() == 1 && !is_card(links.front());
      if (one_trunk) cables = std::max(1.0, std::round(fabric_.links[links.front()].bandwidth.value() / card_rate_));
      if (!one_trunk || read.ec != std::errc() || read.ptr != end || port < 0 || port >= cables) links.clear();
    }
    const std::string key = fmt::format("degraded.{}", index);
    if (links.empty()) {
      std::vector<std::string> names;
      for (const FabricLink& link : fabric_.links) names.push_back(link.name);
      std::string help = fmt::format("such as {};", names.back());
      for (const std::string& near : nearest_choices(degraded.link, names)) help = "did you mean " + near + "?";
      fail_network(key + ".link", fmt::format("no link is called \"{}\"", degraded.link),
                   help + " see: flopcast network show");
    }
    for (const std::uint32_t link : links) capacity_[link] *= 1.0 - (1.0 - degraded.share) / cables;
    const auto dead =
        std::find_if(links.begin(), links.end(), [this](std::uint32_t link) { return !(capacity_[link] > 0.0); });
    if (dead != links.end()) {
      fail_network(
          key + ".share",
          fmt::format("leaves no bandwidth on {}, and messages cannot avoid that link", fabric_.links[*dead].name),
          "use a share above 0, or degrade one of several cables with routing spread");
    }
  }
}

// Parses "node7" as a node of the fabric.
std::optional<int> NetworkFabric::node_named(const std::string& name) const {
  constexpr std::string_view kNode = "node";
  if (name.rfind(kNode, 0) != 0) return std::nullopt;
  int node = -1;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kNode.size(), end, node);
  const bool whole = read.ec == std::errc() && read.ptr == end && name == fmt::format("node{}", node);
  return whole && node >= 0 && node < nodes_ ? std::optional(node) : std::nullopt;
}

// Bytes per second by link; a link may occur more than once.
std::vector<std::pair<std::uint32_t, double>> NetworkFabric::loads_of(const BackgroundTraffic& traffic,
                                                                      std::size_t index) const {
  std::vector<std::pair<std::uint32_t, double>> loads;
  const std::optional<int> from = node_named(traffic.from);
  const std::optional<int> to = node_named(traffic.to);
  if (from && to) {
    if (*from == *to) {
      fail_network(fmt::format("background.{}.to", index), fmt::format("node{} sends to itself", *to),
                   "use another node");
    }
    for (int card = 0; card < cards_; ++card) {
      for (int pair = 0; pair < network_->queue_pairs; ++pair) {
        const auto connection = static_cast<std::uint64_t>(pair);
        for (const std::uint32_t link : fabric_.route(host_at(*from, card), host_at(*to, card), connection)) {
          loads.emplace_back(link, traffic.rate.value() / cards_ / network_->queue_pairs);
        }
      }
    }
    return loads;
  }
  const bool tiered = network_->topology == Topology::kTree || network_->topology == Topology::kRail;
  for (const bool up : {true, false}) {
    const std::string& where = up ? traffic.from : traffic.to;
    const bool other_is_node = (up ? to : from).has_value();
    const bool is_switch = tiered && !other_is_node && where.rfind("tier", 0) == 0;
    if (!is_switch && (up ? from : to)) continue;  // the error is about the other end
    const std::vector<std::uint32_t> links =
        is_switch ? links_named(where + (up ? ".up" : ".down")) : std::vector<std::uint32_t>();
    if (links.empty()) {
      const std::string key = fmt::format("background.{}.{}", index, up ? "from" : "to");
      if (other_is_node && !links_named(where + ".up").empty()) {
        fail_network(key, fmt::format("\"{}\" is a switch, but the other end is a node", where),
                     "use two switches or two nodes");
      }
      fail_network(key,
                   fmt::format("no {} is called \"{}\"", tiered && !other_is_node ? "switch or node" : "node", where),
                   fmt::format("use {}two nodes, such as node0 and node{}; see: flopcast network show",
                               tiered ? "two switches, tierT.N, such as tier0.0, or " : "", nodes_ - 1));
    }
    for (const std::uint32_t link : links) {
      loads.emplace_back(link, traffic.rate.value() / static_cast<double>(links.size()));
    }
  }
  return loads;
}

void NetworkFabric::add_background() {
  for (std::size_t index = 0; index < network_->background.size(); ++index) {
    for (const auto& [link, rate] : loads_of(network_->background[index], index)) {
      if (rate >= capacity_[link]) {
        fail_network(
            fmt::format("background.{}.rate", index),
            fmt::format("fills {}, which carries {:.4g} GB/s", fabric_.links[link].name, capacity_[link] / 1e9),
            "use a lower rate");
      }
      capacity_[link] -= rate;
    }
  }
}

int fabric_nodes(const Cluster& cluster) {
  const Network& network = *cluster.network;
  int nodes = std::max(cluster.nodes, network.nodes.value_or(0));
  for (const int place : network.allocated) nodes = std::max(nodes, place + 1);
  if (network.shape.empty()) return nodes;
  std::int64_t hosts = 1;
  for (const int size : network.shape) hosts = std::min<std::int64_t>(kMostHosts, hosts * size);
  return std::max(nodes, static_cast<int>(hosts));
}

int most_hops(const Cluster& cluster) {
  const Network& network = *cluster.network;
  switch (network.topology) {
    case Topology::kNone:
    case Topology::kStar:
      break;
    case Topology::kTree:
    case Topology::kRail: {
      const std::vector<NetworkTier> tiers = tiers_of(network, cluster.nics_per_node);
      int levels = 1;
      for (const NetworkTier& tier : tiers) levels += tier.nodes < fabric_nodes(cluster) ? 1 : 0;
      return 2 * levels - 1;
    }
    case Topology::kTorus: {
      int hops = 0;
      for (const int size : network.shape) hops += size / 2;
      return std::max(1, hops);
    }
    case Topology::kDragonfly: {
      constexpr int kRouters = 6;  // two hops within the first group, one between groups, two within the last
      return kRouters;
    }
    case Topology::kLinks: {
      Fabric fabric;
      return std::max(1, CableRoutes(fabric, network.cables, cluster.nodes).longest() - 1);
    }
  }
  return 1;
}

CableRoutes::CableRoutes(Fabric& fabric, const std::vector<NetworkCable>& cables, int nodes) : nodes_(nodes) {
  for (int node = 0; node < nodes; ++node) place_of(fmt::format("node{}", node));
  std::map<std::pair<int, int>, int> twins;
  for (const NetworkCable& cable : cables) {
    const int from = place_of(cable.from);
    const int to = place_of(cable.to);
    const int twin = twins[std::minmax(from, to)]++;
    const std::string suffix = twin == 0 ? "" : fmt::format(".{}", twin);
    add(fabric, fmt::format("{}-{}{}", cable.from, cable.to, suffix), from, to, cable.bandwidth);
    add(fabric, fmt::format("{}-{}{}", cable.to, cable.from, suffix), to, from, cable.bandwidth);
  }
  fabric.hosts = nodes;
  way_back_.resize(static_cast<std::size_t>(nodes));
}

std::vector<std::uint32_t> CableRoutes::operator()(int from, int to, std::uint64_t connection) {
  std::vector<int>& distance = distances_to(to);
  std::vector<std::uint32_t> way;
  int here = from;
  if (distance[static_cast<std::size_t>(here)] < 0) {
    fail_network("links", fmt::format("no path leads from node{} to node{}", from, to), "connect all nodes");
  }
  while (here != to) {
    std::vector<std::uint32_t> nearer;
    for (const std::uint32_t link : out_[static_cast<std::size_t>(here)]) {
      const int next = ends_[link];
      if (distance[static_cast<std::size_t>(next)] == distance[static_cast<std::size_t>(here)] - 1) {
        nearer.push_back(link);
      }
    }
    const std::uint32_t taken = nearer[connection % nearer.size()];
    way.push_back(taken);
    here = ends_[taken];
  }
  return way;
}

int CableRoutes::longest() {
  int longest = 1;
  const std::vector<int>& distance = distances_to(0);
  for (int node = 0; node < nodes_; ++node) longest = std::max(longest, distance[static_cast<std::size_t>(node)]);
  return longest;
}

int CableRoutes::place_of(const std::string& name) {
  const auto [found, fresh] = places_.emplace(name, static_cast<int>(out_.size()));
  if (fresh) {
    out_.emplace_back();
    in_.emplace_back();
  }
  return found->second;
}

void CableRoutes::add(Fabric& fabric, std::string name, int from, int to, BytesPerSecond bandwidth) {
  const auto link = static_cast<std::uint32_t>(fabric.links.size());
  fabric.links.push_back({std::move(name), bandwidth});
  ends_.push_back(to);
  starts_.push_back(from);
  out_[static_cast<std::size_t>(from)].push_back(link);
  in_[static_cast<std::size_t>(to)].push_back(link);
}

std::vector<int>& CableRoutes::distances_to(int to) {
  std::vector<int>& distance = way_back_[static_cast<std::size_t>(to)];
  if (!distance.empty()) return distance;
  distance.assign(out_.size(), -1);
  distance[static_cast<std::size_t>(to)] = 0;
  std::queue<int> reached;
  reached.push(to);
  for (; !reached.empty(); reached.pop()) {
    const int here = reached.front();
    for (const std::uint32_t link : in_[static_cast<std::size_t>(here)]) {
      int& before = distance[static_cast<std::size_t>(starts_[link])];
      if (before >= 0) continue;
      before = distance[static_cast<std::size_t>(here)] + 1;
      reached.push(starts_[link]);
    }
  }
  return distance;
}

}  // namespace flopcast
