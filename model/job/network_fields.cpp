#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/hardware/network_fabric.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMostNetworkNodes = 1'000'000;
constexpr int kMostQueuePairs = 64;
constexpr int kLargestSeed = 1'000'000'000;
constexpr double kMostOversubscribed = 1'000.0;

std::vector<std::string> preset_names() {
  return catalogue_names(CatalogueKind::kNetworks);
}

// Reads "hash", or "hash:7" with its seed.
void read_routing(ObjectReader& reader, const FieldInfo& field, Network& network) {
  const std::optional<std::string> text = reader.text(field.key);
  constexpr std::string_view kSeeded = "hash:";
  if (text && text->rfind(kSeeded, 0) == 0) {
    const auto seed = parse_whole(text->substr(kSeeded.size()));
    if (!seed || *seed < 0 || *seed > kLargestSeed) {
      reader.fail(field.key, fmt::format("\"{}\" has no valid seed", *text), "use hash:SEED, such as hash:7");
    }
    network.routing = Routing::kHash;
    network.seed = static_cast<int>(*seed);
    return;
  }
  const auto index = reader.choice(field.key, names_of<Routing>());
  if (index) network.routing = static_cast<Routing>(*index);
}
OrderedJsonValue write_routing(const FieldInfo&, const Network& network) {
  return name_of(network.routing);
}

// Reads "compact", "scattered:7", or a list of nodes.
void read_allocation(ObjectReader& reader, const FieldInfo& field, Network& network) {
  if (reader.find(field.key)->is_array()) {
    network.allocation.clear();
    network.allocated = *reader.whole_list(field.key, 0, kMostNetworkNodes - 1);
    if (network.allocated.empty())
      reader.fail(field.key, "is an empty list", "list one node of the fabric for each node of the cluster");
  } else {
    network.allocation = *reader.text(field.key);
  }
}
OrderedJsonValue write_allocation(const FieldInfo&, const Network& network) {
  if (!network.allocated.empty()) return OrderedJson(network.allocated);
  return network.allocation;
}

void read_shape(ObjectReader& reader, const FieldInfo& field, Network& network) {
  if (const auto sizes = reader.whole_list(field.key, 1, kMostNetworkNodes)) {
    network.shape = *sizes;
  }
}
OrderedJsonValue write_shape(const FieldInfo&, const Network& network) {
  return network.shape.empty() ? OrderedJson() : OrderedJson(network.shape);
}

const Fields<NetworkTier>& tier_fields() {
  static const Fields<NetworkTier> fields = {
      whole<&NetworkTier::nodes>("nodes", 1, kMostNetworkNodes, "nodes connected by a switch of the tier")
          .required("give the number of nodes connected by a switch of the tier"),
      share<&NetworkTier::oversubscription>("oversubscription", kMostOversubscribed,
                                            "ratio of a switch's downward to its upward bandwidth"),
  };
  return fields;
}

double share_left(const ObjectReader& reader, std::string_view key, double left) {
  if (left > 1.0) reader.fail(key, fmt::format("{} is out of range", left), "expected a number from 0 to 1");
  return left;
}

const Fields<DegradedLink>& degraded_fields() {
  static const Fields<DegradedLink> fields = {
      text<&DegradedLink::link>("link", "name of the link, such as tier0.3.up.1").required("give the name of a link"),
      custom<DegradedLink>(
          "share", FieldKind::kNumber, "remaining fraction of its bandwidth; 0: dead",
          [](ObjectReader& reader, const FieldInfo& field, DegradedLink& degraded_link) {
            degraded_link.share = share_left(reader, field.key, *reader.amount(field.key));
          },
          [](const FieldInfo&, const DegradedLink& degraded_link) -> OrderedJsonValue { return degraded_link.share; })
          .required("give the remaining fraction of its bandwidth")
          .up_to(1.0),
  };
  return fields;
}

const Fields<BackgroundTraffic>& background_fields() {
  static const Fields<BackgroundTraffic> fields = {
      text<&BackgroundTraffic::from>("from", "sender: a switch such as tier0.0, or a node such as node0")
          .required("give a switch such as tier0.0, or a node of the fabric such as node0"),
      text<&BackgroundTraffic::to>("to", "receiver: another switch or node").required("give another switch or node"),
      quantity<&BackgroundTraffic::rate>("rate", Dimension::kBandwidth, "rate of other jobs' traffic between them")
          .required("give the rate of other jobs' traffic between them, such as \"20GB/s\"")
          .above_zero(),
  };
  return fields;
}

const Fields<NetworkCable>& cable_fields() {
  static const Fields<NetworkCable> fields = {
      text<&NetworkCable::from>("from", "one end: a node such as node0, or a switch with any other name")
          .required("give a node or switch"),
      text<&NetworkCable::to>("to", "the other end").required("give a node or switch"),
      quantity<&NetworkCable::bandwidth>("bandwidth", Dimension::kBandwidth, "bandwidth in each direction")
          .required("give a rate such as \"50GB/s\"")
          .above_zero(),
  };
  return fields;
}

// Parses the form used by --degrade: "tier0.3.up.1=0.5,tier0.4.up.0=0".
DegradedLink degraded_of_text(const ObjectReader& reader, std::string_view key, const std::string& text) {
  const std::size_t equals = text.find('=');
  std::string share = equals == std::string::npos ? "" : text.substr(equals + 1);
  const bool percent = share.ends_with('%');
  if (percent) share = trim(share.substr(0, share.size() - 1));
  std::optional<double> left = parse_number(share);
  constexpr double kPercent = 1e-2;
  if (left && percent) *left *= kPercent;
  if (!left || *left < 0.0) {
    reader.fail(key, fmt::format("\"{}\" does not have the form LINK=SHARE", text),
                "use for example tier0.3.up.1=0.5 or tier0.3.up.1=50%");
  }
  return {text.substr(0, equals), share_left(reader, key, *left)};
}

void read_degraded(ObjectReader& reader, const FieldInfo& field, Network& network) {
  if (!reader.find(field.key)->is_string()) {
    own_parts<&Network::degraded, degraded_fields>(field.key).field.read(reader, field, network);
    return;
  }
  for (const std::string& part : split(*reader.text(field.key))) {
    network.degraded.push_back(degraded_of_text(reader, field.key, part));
  }
}

// The values of a preset, overridden by keys given next to it.
nlohmann::json network_values(const nlohmann::json& given, const Origins& origins) {
  const auto fail = [&](const std::string& field, const std::string& problem, const std::string& help) {
    throw ConfigError({field, problem, origins.where(field), help});
  };
  const std::vector<std::string> names = preset_names();
  if (!given.is_string() && !given.is_object()) {
    fail("cluster.network", fmt::format("{} is neither a name nor an object", given.dump()), choices_help("", names));
  }
  if (given == "none") return {{"topology", "none"}};
  if (given.is_object() && !given.contains("preset")) return given;
  const nlohmann::json& name = given.is_string() ? given : given.at("preset");
  if (name == "none") {
    nlohmann::json values = given;
    values.erase("preset");
    values["topology"] = "none";
    return values;
  }
  nlohmann::json values;
  if (name.is_string()) values = catalogue_values(CatalogueKind::kNetworks, name.get<std::string>());
  if (values.is_null()) {
    const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
    fail("cluster.network", fmt::format("unknown network \"{}\"", text),
         choices_help(text, names) + "; also valid: none, or the path of a JSON file");
  }
  values.erase("description");
  values["preset"] = values.at("name");
  values.erase("name");
  if (given.is_object()) values.update(given);
  return values;
}

void refuse_others(const ObjectReader& reader, const Network& network) {
  const auto is = [&](std::initializer_list<Topology> topologies) {
    return std::find(topologies.begin(), topologies.end(), network.topology) != topologies.end();
  };
  const auto refuse = [&](const char* key, bool fits, const char* of) {
    if (!reader.has(key) || fits || network.topology == Topology::kNone) return;
    reader.fail(key, fmt::format("does not apply to topology {}", name_of(network.topology)),
                fmt::format("use it with {}", of));
  };
  const bool tiered = is({Topology::kTree, Topology::kRail});
  refuse("tiers", tiered, "topology tree or rail");
  refuse("oversubscription", tiered, "topology tree or rail");
  refuse("shape", is({Topology::kTorus, Topology::kDragonfly}), "topology torus or dragonfly");
  refuse("link_bandwidth", is({Topology::kTorus, Topology::kDragonfly}), "topology torus or dragonfly");
  refuse("links", network.topology == Topology::kLinks, "topology links");
}

}  // namespace

const Fields<Network>& network_fields() {
  static const Fields<Network> fields = {
      text<&Network::preset>("preset", "network between nodes: a preset, a file, or none")
          .flag("NAME", {"--network"})
          .names_object()
          .among(&preset_names),
      choice<&Network::topology>("topology", "how the nodes are connected").flag("NAME"),
      own_parts<&Network::tiers, tier_fields>("tiers", "switch tiers of a tree or of rails, from the nodes up"),
      share<&Network::oversubscription>("oversubscription", kMostOversubscribed, "oversubscription of the top tier")
          .flag("RATIO", {"--oversubscription"}),
      custom<Network>("routing", FieldKind::kText, "routing over parallel cables: spread, dst or hash[:SEED]",
                      &read_routing, &write_routing)
          .flag("NAME", {"--routing"}),
      whole<&Network::queue_pairs>("queue_pairs", 1, kMostQueuePairs,
                                   "paths per pair of network cards, if routes are hashed")
          .flag("N"),
      whole<&Network::seed>("seed", 0, kLargestSeed, "seed of the hash").flag("N"),
      quantity<&Network::hop_latency>("hop_latency", Dimension::kTime, "latency added by each switch on the path")
          .flag("TIME"),
      boolean<&Network::pxn>("pxn", "rails: reach another rail's card over NVLink"),
      boolean<&Network::sharp>("sharp", "switches perform the reductions of all-reduces"),
      custom<Network>("allocation", FieldKind::kWholeList,
                      "the job's nodes in the fabric: compact, scattered:SEED or a list", &read_allocation,
                      &write_allocation)
          .flag("NODES")
          .up_to(kMostNetworkNodes - 1),
      whole<&Network::nodes>("nodes", 1, kMostNetworkNodes, "nodes of the whole fabric")
          .otherwise("as many as the cluster has")
          .flag("N"),
      custom<Network>("shape", FieldKind::kWholeList,
                      "torus: sizes; dragonfly: groups, chassis, routers, nodes per router", &read_shape, &write_shape)
          .up_to(kMostNetworkNodes),
      quantity<&Network::card_bandwidth>("card_bandwidth", Dimension::kBandwidth,
                                         "bandwidth of a network card's link (default: what collectives reach on it)")
          .zero_is_none(),
      quantity<&Network::link_bandwidth>("link_bandwidth", Dimension::kBandwidth,
                                         "torus, dragonfly: bandwidth between switches")
          .zero_is_none(),
      own_parts<&Network::cables, cable_fields>("links", "cables between nodes and switches, or a file that lists them")
          .flag("FILE", {"--links"}),
      custom<Network>("degraded", FieldKind::kList, "links with only a fraction of their bandwidth", &read_degraded,
                      &write_list<&Network::degraded, degraded_fields>)
          .of<degraded_fields>()
          .flag("LINK=SHARE", {"--degrade"}),
      own_parts<&Network::background, background_fields>("background", "other jobs' traffic between switches or nodes"),
  };
  return fields;
}

Network read_network(const nlohmann::json& given, const Origins& origins) {
  const nlohmann::json values = network_values(given, origins);
  ObjectReader reader(values, "cluster.network", origins);
  Network network;
  if (reader.has("links") && !reader.has("topology")) network.topology = Topology::kLinks;
  read_fields(network_fields(), reader, network);
  reader.refuse_unknown_keys();
  refuse_others(reader, network);
  constexpr double kLeastOversubscribed = 1.0 / kMostOversubscribed;
  const auto check = [&](const std::string& field, double ratio) {
    if (ratio >= kLeastOversubscribed) return;
    throw ConfigError({"cluster.network." + field, fmt::format("{} is out of range", ratio),
                       origins.where("cluster.network." + field),
                       fmt::format("expected a number from {} (more cables up than down) to {}", kLeastOversubscribed,
                                   kMostOversubscribed)});
  };
  constexpr double kWidest = 1e18;  // bytes per second; sums over a fabric remain finite
  for (std::size_t cable = 0; cable < network.cables.size(); ++cable) {
    if (network.cables[cable].bandwidth.value() <= kWidest) continue;
    const std::string field = fmt::format("cluster.network.links[{}].bandwidth", cable);
    throw ConfigError({field, "is out of range", origins.where(field), "expected at most 1e18 bytes per second"});
  }
  if (network.oversubscription) check("oversubscription", *network.oversubscription);
  for (std::size_t tier = 0; tier < network.tiers.size(); ++tier) {
    check(fmt::format("tiers[{}].oversubscription", tier), network.tiers[tier].oversubscription);
  }
  return network;
}

void check_network(const Cluster& cluster, const Origins& origins, std::vector<std::string>& assumptions) {
  if (!cluster.shares_links()) return;
  const Network& network = *cluster.network;
  try {
    const NetworkFabric fabric(cluster);
    const bool tiered = network.topology == Topology::kTree || network.topology == Topology::kRail;
    if (tiered && network.tiers.empty()) {
      assumptions.push_back(
          fmt::format("cluster.network.tiers are leaves with 64 ports, {}",
                      network.topology == Topology::kRail ? "32 nodes per segment" : "half of them for network cards"));
    }
  } catch (const ConfigError& error) {
    Diagnostic diagnostic = error.diagnostic();
    diagnostic.where = origins.where(diagnostic.field);
    throw ConfigError(diagnostic);
  }
}

}  // namespace flopcast
