#include "sim/files/flow_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/config/object_reader.hpp"
#include "model/hardware/fabric.hpp"

namespace flopcast {

namespace {

// A list that is a member of an object.
const nlohmann::json& list_of(JsonReader& reader, std::string_view key, const char* help) {
  const nlohmann::json* const list = reader.find(key);
  if (list == nullptr) reader.fail_missing(key, help);
  if (!list->is_array()) reader.fail(key, "is not a list", help);
  return *list;
}

double positive(JsonReader& reader, std::string_view key, const char* unit) {
  const std::optional<double> value = reader.amount(key);
  if (!value) reader.fail_missing(key, fmt::format("{}, above 0", unit));
  if (!(*value > 0)) reader.fail(key, "must be above 0", fmt::format("{}, above 0", unit));
  return *value;
}

std::vector<double> weights_of(JsonReader& flow, std::size_t links) {
  const nlohmann::json* const list = flow.find("weights");
  if (list == nullptr) return std::vector<double>(links, 1.0);
  const char* const help = "a number above 0 for each of the flow's links";
  if (!list->is_array()) flow.fail("weights", "is not a list", help);
  if (list->size() != links) {
    flow.fail("weights", fmt::format("{} weights for {} links", list->size(), links), help);
  }
  std::vector<double> weights;
  for (const nlohmann::json& weight : *list) {
    if (!weight.is_number() || !(weight.get<double>() > 0) || weight.get<double>() > 1e15) {
      flow.fail("weights", fmt::format("{} is not a valid weight", shown_value(weight)), help);
    }
    weights.push_back(weight.get<double>());
  }
  return weights;
}

std::string name_of_flow(JsonReader& flow) {
  const auto end = [&flow](const char* key) -> std::string {
    const nlohmann::json* const value = flow.find(key);
    if (value == nullptr) return "";
    if (!value->is_number_integer() && !value->is_string()) {
      flow.fail(key, fmt::format("{} is not a host", shown_value(*value)), "a number or a name");
    }
    return value->is_string() ? value->get<std::string>() : value->dump();
  };
  const std::string from = end("src");
  const std::string to = end("dst");
  const std::string kind = flow.text("kind").value_or("");
  const std::string ends = from.empty() && to.empty() ? "" : fmt::format("{} -> {}", from, to);
  return fmt::format("{}{}{}", kind, kind.empty() || ends.empty() ? "" : " ", ends);
}

constexpr int kMostHosts = 1 << 20;

int count_of(JsonReader& reader, std::string_view key, std::optional<int> otherwise = std::nullopt) {
  const std::optional<int> count = reader.whole(key, 1, kMostHosts);
  if (!count && !otherwise) reader.fail_missing(key, "a whole number, at least 1");
  return count.value_or(otherwise.value_or(1));
}

BytesPerSecond bandwidth_of(JsonReader& reader, std::string_view key) {
  return BytesPerSecond(positive(reader, key, "bytes per second"));
}

std::vector<int> counts_of(JsonReader& reader, std::string_view key) {
  const std::optional<std::vector<int>> counts = reader.whole_list(key, 1, kMostHosts);
  if (!counts || counts->empty()) reader.fail_missing(key, "a list of whole numbers, at least 1");
  return *counts;
}

void reject_excessive_size(const JsonReader& reader, std::string_view key, const std::vector<int>& factors) {
  double hosts = 1.0;
  for (const int factor : factors) hosts *= factor;
  if (hosts > kMostHosts)
    reader.fail(key, fmt::format("{:.0f} hosts or links", hosts), fmt::format("at most {}", kMostHosts));
}

Fabric star_of(JsonReader& shape) {
  const int hosts = count_of(shape, "hosts");
  const BytesPerSecond up = bandwidth_of(shape, "bandwidth");
  return star_fabric(hosts, up, shape.has("down_bandwidth") ? bandwidth_of(shape, "down_bandwidth") : up);
}

Fabric leaf_spine_of(JsonReader& shape) {
  const TreeLevel hosts = {count_of(shape, "hosts_per_leaf"), 1, bandwidth_of(shape, "bandwidth")};
  const TreeLevel leaves = {count_of(shape, "leaves"), count_of(shape, "spines"),
                            bandwidth_of(shape, "uplink_bandwidth")};
  reject_excessive_size(shape, "leaves", {hosts.down, leaves.down});
  reject_excessive_size(shape, "spines", {leaves.down, leaves.up});
  const std::size_t routing = shape.choice("routing", {"dst", "hash"}).value_or(0);
  const int seed = shape.whole("seed", 0).value_or(0);
  return tree_fabric({hosts, leaves}, routing == 0 ? TreeRouting::kDestination : TreeRouting::kHash,
                     static_cast<std::uint64_t>(seed));
}

Fabric three_level_of(JsonReader& shape) {
  const TreeLevel hosts = {count_of(shape, "hosts_per_leaf"), 1, bandwidth_of(shape, "bandwidth")};
  const TreeLevel leaves = {count_of(shape, "leaves_per_pod"), 1, bandwidth_of(shape, "leaf_uplink")};
  const TreeLevel pods = {count_of(shape, "pods"), 1, bandwidth_of(shape, "pod_uplink")};
  reject_excessive_size(shape, "pods", {hosts.down, leaves.down, pods.down});
  return tree_fabric({hosts, leaves, pods}, TreeRouting::kDestination);
}

Fabric fat_tree_of(JsonReader& shape) {
  const std::vector<int> down = counts_of(shape, "down");
  const std::vector<int> up = counts_of(shape, "up");
  if (down.size() != up.size())
    shape.fail("up", fmt::format("{} numbers for {} levels", up.size(), down.size()), "one for each level of \"down\"");
  reject_excessive_size(shape, "down", down);
  std::vector<int> links = down;
  links.insert(links.end(), up.begin(), up.end());
  reject_excessive_size(shape, "up", links);
  const BytesPerSecond bandwidth = bandwidth_of(shape, "bandwidth");
  std::vector<TreeLevel> levels;
  for (std::size_t level = 0; level < down.size(); ++level) levels.push_back({down[level], up[level], bandwidth});
  return tree_fabric(levels, TreeRouting::kDestination);
}

Fabric torus_of(JsonReader& shape) {
  const std::vector<int> sizes = counts_of(shape, "dims");
  reject_excessive_size(shape, "dims", sizes);
  return torus_fabric(sizes, bandwidth_of(shape, "bandwidth"));
}

Fabric dragonfly_of(JsonReader& shape) {
  Dragonfly dragonfly;
  dragonfly.groups = count_of(shape, "groups");
  dragonfly.chassis = count_of(shape, "chassis");
  dragonfly.routers = count_of(shape, "routers");
  dragonfly.nodes = count_of(shape, "nodes");
  reject_excessive_size(shape, "groups", {dragonfly.groups, dragonfly.groups});
  reject_excessive_size(shape, "routers", {dragonfly.groups, dragonfly.chassis, dragonfly.routers, dragonfly.routers});
  reject_excessive_size(shape, "chassis", {dragonfly.groups, dragonfly.routers, dragonfly.chassis, dragonfly.chassis});
  reject_excessive_size(shape, "nodes", {dragonfly.groups, dragonfly.chassis, dragonfly.routers, dragonfly.nodes});
  if (dragonfly.groups > 1 && dragonfly.chassis * dragonfly.routers < dragonfly.groups) {
    shape.fail("groups",
               fmt::format("{} groups of {} routers", dragonfly.groups, dragonfly.chassis * dragonfly.routers),
               "use at least as many routers per group as groups: each router has the link to one group");
  }
  const BytesPerSecond link = bandwidth_of(shape, "bandwidth");
  dragonfly.node_bandwidth = link;
  dragonfly.green_bandwidth = link * static_cast<double>(count_of(shape, "green_links", 1));
  dragonfly.black_bandwidth = link * static_cast<double>(count_of(shape, "black_links", 1));
  dragonfly.blue_bandwidth = link * static_cast<double>(count_of(shape, "blue_links", 1));
  return dragonfly_fabric(dragonfly);
}

Fabric rail_of(JsonReader& shape) {
  RailShape rail;
  rail.nodes = count_of(shape, "nodes");
  rail.gpus_per_node = count_of(shape, "gpus_per_node");
  rail.nodes_per_segment = count_of(shape, "nodes_per_segment", rail.nodes);
  rail.spines = count_of(shape, "spines", 1);
  reject_excessive_size(shape, "nodes", {rail.nodes, rail.gpus_per_node, rail.spines});
  rail.pxn = shape.boolean("pxn").value_or(true);
  rail.nvlink_bandwidth = bandwidth_of(shape, "nvlink");
  rail.card_bandwidth = bandwidth_of(shape, "nic");
  rail.uplink_bandwidth = bandwidth_of(shape, "uplink_bandwidth");
  return rail_fabric(rail);
}

void degrade(JsonReader& shape, Fabric& fabric) {
  std::optional<JsonReader> degraded = shape.object("degraded");
  if (!degraded) return;
  for (FabricLink& link : fabric.links) {
    if (degraded->has(link.name)) link.bandwidth = bandwidth_of(*degraded, link.name);
  }
  degraded->refuse_unknown_keys();
}

Fabric fabric_of(JsonReader& shape) {
  struct Kind {
    const char* name;
    Fabric (*read)(JsonReader&);
    const char* routing;  // the only routing; null if there are several
  };
  static constexpr Kind kKinds[] = {{"star", star_of, "switch"},
                                    {"leaf-spine", leaf_spine_of, nullptr},
                                    {"fat-tree", fat_tree_of, "d-mod-k"},
                                    {"three-level", three_level_of, "d-mod-k"},
                                    {"torus", torus_of, "dimension order"},
                                    {"dragonfly", dragonfly_of, "minimal"},
                                    {"rail", rail_of, "rail"}};
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  const std::optional<std::size_t> chosen = shape.choice("kind", names);
  if (!chosen) shape.fail_missing("kind", fmt::format("{}", fmt::join(names, ", ")));
  const Kind& kind = kKinds[*chosen];
  Fabric fabric = kind.read(shape);
  if (kind.routing != nullptr) shape.choice("routing", {std::string(kind.routing)});
  degrade(shape, fabric);
  // Derived values may be given, too.
  const std::optional<int> hosts = shape.whole("hosts_total", 0);
  if (hosts && *hosts != fabric.hosts) {
    shape.fail("hosts_total", fmt::format("{} hosts", *hosts), fmt::format("the topology has {} hosts", fabric.hosts));
  }
  shape.refuse_unknown_keys();
  return fabric;
}

int host_of(JsonReader& flow, std::string_view key, const Fabric& fabric) {
  const std::optional<int> host = flow.whole(key, 0, fabric.hosts - 1);
  if (!host) flow.fail_missing(key, fmt::format("a host, 0 to {}", fabric.hosts - 1));
  return *host;
}

std::vector<int> routed(JsonReader& flow, const Fabric& fabric, std::size_t number) {
  const int from = host_of(flow, "src", fabric);
  const std::vector<std::uint32_t> route = fabric.route(from, host_of(flow, "dst", fabric), number);
  return {route.begin(), route.end()};
}

void read_flow(JsonReader& flow, std::size_t flows, const std::optional<Fabric>& fabric, FlowCase& result) {
  const std::size_t links = result.links.size();
  const std::optional<double> bytes = flow.amount("bytes");
  if (!bytes) flow.fail_missing("bytes", "the number of bytes to send, 0 or more");
  const double start = flow.amount("start").value_or(0.0);
  const double cap = flow.has("rate") ? positive(flow, "rate", "bytes per second") : FlowProgram::kNoCap;
  const int last_link = static_cast<int>(links) - 1;
  if ((links == 0 || fabric) && flow.has("links") && !flow.find("links")->empty()) {
    flow.fail("links", "the case has no links", "remove it: a topology has its own routes");
  }
  const std::vector<int> route = fabric       ? routed(flow, *fabric, result.program.flows())
                                 : links == 0 ? std::vector<int>()
                                              : flow.whole_list("links", 0, last_link).value_or(std::vector<int>());
  if (route.empty() && cap == FlowProgram::kNoCap) {
    flow.fail("links", "a flow without links has no rate", "give \"links\", or \"rate\" in bytes per second");
  }
  const std::vector<double> weights = weights_of(flow, route.size());
  const std::vector<int> after = flow.whole_list("after", 0, static_cast<int>(flows) - 1).value_or(std::vector<int>());
  result.flows.push_back(name_of_flow(flow));
  result.program.add_flow(*bytes, start, cap);
  for (std::size_t index = 0; index < route.size(); ++index) {
    result.program.add_use(static_cast<LinkId>(route[index]), weights[index]);
  }
  for (const int before : after) result.program.add_predecessor(static_cast<FlowId>(before));
  flow.find("ranks");
  flow.refuse_unknown_keys();
}

void read_links(JsonReader& root, const Origins& origins, FlowCase& result) {
  const nlohmann::json& links = list_of(root, "links", "a list of {\"name\", \"bandwidth\"}, or a \"topology\"");
  for (std::size_t index = 0; index < links.size(); ++index) {
    JsonReader link(links[index], fmt::format("links[{}]", index), origins);
    result.links.push_back(link.text("name").value_or(fmt::format("link {}", index)));
    result.program.add_link(positive(link, "bandwidth", "bytes per second"));
    link.refuse_unknown_keys();
  }
}

void reject_cycles(const FlowCase& result, const Origins& origins) {
  const std::vector<FlowId> order = in_order(result.program);
  if (order.size() == result.program.flows()) return;
  std::vector<bool> comes(result.program.flows(), false);
  for (const FlowId flow : order) comes[flow] = true;
  const auto stuck = std::find(comes.begin(), comes.end(), false) - comes.begin();
  const std::string field = fmt::format("flows[{}].after", stuck);
  throw ConfigError({field, "waits for itself, or for flows that wait for each other", origins.where(field),
                     "\"after\" must list flows that end independently of this one"});
}

}  // namespace

FlowCase read_flow_case(std::string_view text, const std::string& file) {
  Origins origins;
  origins.file = file;
  const nlohmann::json json = parse_json(text, file);
  JsonReader root(json, "", origins);
  FlowCase result;
  result.name = root.text("name").value_or(file);
  for (const char* told : {"pattern", "topology", "finish", "finish_exact", "about", "schema"}) root.find(told);
  std::optional<Fabric> fabric;
  if (!root.has("links") && root.has("topology")) {
    std::optional<JsonReader> shape = root.object("topology");
    fabric = fabric_of(*shape);
    for (const FabricLink& link : fabric->links) {
      result.links.push_back(link.name);
      result.program.add_link(link.bandwidth.value());
    }
  } else {
    read_links(root, origins, result);
  }
  const nlohmann::json& flows = list_of(root, "flows", "a list of {\"bytes\", \"start\", \"links\"}");
  if (flows.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    root.fail("flows", fmt::format("{} flows", flows.size()), "at most 2147483647");
  }
  for (std::size_t index = 0; index < flows.size(); ++index) {
    JsonReader flow(flows[index], fmt::format("flows[{}]", index), origins);
    read_flow(flow, flows.size(), fabric, result);
  }
  root.refuse_unknown_keys();
  reject_cycles(result, origins);
  return result;
}

std::string write_finish_times(const std::vector<double>& finish) {
  return dumped(nlohmann::json({{"finish", finish}}), 2);
}

}  // namespace flopcast
