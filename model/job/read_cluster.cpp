#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

// "8xdgx-a100-80g" -> {"name": "dgx-a100-80g", "nodes": 8}.
nlohmann::json from_short_form(const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  constexpr std::size_t kMostDigits = 9;
  if (digits == 0 || digits > kMostDigits || digits >= text.size() || text[digits] != 'x') return {{"name", text}};
  return {{"name", text.substr(digits + 1)}, {"nodes", std::stoi(text.substr(0, digits))}};
}

std::string entries_help(CatalogueKind kind, const std::string& text) {
  const std::vector<std::string> near = nearest_choices(text, catalogue_names(kind));
  return fmt::format("{}see: flopcast catalog {}",
                     near.empty() ? "" : fmt::format("did you mean {}? ", fmt::join(near, " or ")), name_of(kind));
}

nlohmann::json catalogue_entry(CatalogueKind kind, const nlohmann::json& object, const std::string& field,
                               const Origins& origins) {
  const nlohmann::json& name = object.at("name");
  const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
  nlohmann::json values = catalogue_values(kind, text);
  if (values.is_null()) {
    const std::string_view kind_name = name_of(kind);
    throw ConfigError({field, fmt::format("unknown {} \"{}\"", kind_name.substr(0, kind_name.size() - 1), text),
                       origins.where(field), entries_help(kind, text)});
  }
  return values;
}

nlohmann::json with_catalogue_entry(CatalogueKind kind, const nlohmann::json& object, const std::string& field,
                                    const Origins& origins) {
  nlohmann::json values = catalogue_entry(kind, object, field, origins);
  values.update(object);
  return values;
}

GemmKernel read_gemm_kernel(ObjectReader& device) {
  GemmKernel kernel;
  auto reader = device.object("gemm_kernel");
  if (!reader) return kernel;
  read_fields(gemm_kernel_fields(), *reader, kernel);
  reader->refuse_unknown_keys();
  // A depth measured by the user applies to all GEMMs.
  const bool one_depth = reader->has("overhead_depth") && !reader->has("weight_gradient_depth");
  if (one_depth) kernel.weight_gradient_depth = kernel.overhead_depth;
  return kernel;
}

// Isolated GEMMs reach kernel_efficiency; a training step sustains a fraction of that rate. A given gemm_efficiency
// already refers to training steps.
std::optional<double> sustained_efficiency(ObjectReader& reader, const Device& device, bool is_given,
                                           std::vector<std::string>& assumptions) {
  const auto kernels = reader.fraction("kernel_efficiency", 1.0);
  const auto sustained = reader.fraction("sustained_share", 1.0);
  const auto otherwise = reader.fraction("gemm_efficiency", 1.0);
  if (!kernels || is_given) return otherwise;
  assumptions.push_back(
      sustained ? fmt::format("GEMMs on {} reach {:.3g} of the peak alone, and {} of that rate in a training step",
                              device.name, *kernels, *sustained)
                : fmt::format("GEMMs on {} are assumed to reach {:.3g} of the peak in a training step, as they do "
                              "alone: no measurement compares the two",
                              device.name, *kernels));
  return *kernels * sustained.value_or(1.0);
}

// Efficiencies by precision, measured in training steps or for isolated GEMMs.
void read_precision_efficiencies(ObjectReader& reader, Device& device, bool is_given) {
  const auto read = [&](std::string_view key, double sustained, bool counts) {
    auto shares = reader.object(key);
    if (!shares) return;
    for (std::size_t index = 0; index < names_of<Precision>().size(); ++index) {
      const auto share = shares->fraction(names_of<Precision>()[index], 1.0);
      if (share && counts) device.gemm_efficiency_by_precision[index] = *share * sustained;
    }
    const auto in_4_bits = shares->fraction(kFp4, 1.0);
    if (in_4_bits && counts) device.gemm_efficiency_fp4 = *in_4_bits * sustained;
    shares->refuse_unknown_keys();
  };
  read("kernel_efficiency_by_precision", reader.fraction("sustained_share", 1.0).value_or(1.0), !is_given);
  read("gemm_efficiency_by_precision", 1.0, true);
}

// A locked clock slows GEMMs in proportion to the clock for which their peak is stated.
void check_clock(const ObjectReader& reader, const Device& device) {
  if (device.clock_hz > 0.0 && device.boost_clock_hz <= 0.0) {
    reader.fail("clock", fmt::format("needs boost_clock, which device {} does not specify", device.name),
                "give boost_clock, the clock of the device's peak, such as \"1830MHz\"");
  }
}

// Efficiencies missing from an inline device are taken from its generation, and noted as assumptions.
void settle_efficiencies(ObjectReader& reader, Device& device, bool gives_gemm, std::vector<std::string>& assumptions) {
  const DeviceDefaults& defaults = device_defaults(device.generation);
  std::vector<std::string> assumed;
  const auto sustained = sustained_efficiency(reader, device, gives_gemm, assumptions);
  device.gemm_efficiency = sustained.value_or(defaults.gemm_efficiency);
  if (!sustained) assumed.push_back(fmt::format("gemm_efficiency {}", defaults.gemm_efficiency));
  const auto settle = [&reader, &assumed](std::string_view key, double& share, double otherwise) {
    if (reader.has(key)) return;
    share = otherwise;
    assumed.push_back(fmt::format("{} {}", key, otherwise));
  };
  settle("memory_efficiency", device.memory_efficiency, defaults.memory_efficiency);
  settle("flash_forward_efficiency", device.flash_forward_efficiency, defaults.flash_forward_efficiency);
  settle("flash_backward_efficiency", device.flash_backward_efficiency, defaults.flash_backward_efficiency);
  if (!reader.has("kernel_launch")) {
    device.kernel_launch = defaults.kernel_launch;
    assumed.push_back(fmt::format("kernel_launch {} us", defaults.kernel_launch.value() * 1e6));
  }
  if (assumed.empty()) return;
  assumptions.push_back(fmt::format("device {} uses {} of generation {} ({})", device.name, fmt::join(assumed, ", "),
                                    name_of(device.generation), defaults.source));
}

// Index of a device among the distinct ones; nodes with the same device share it.
int add_device(const Device& device, const nlohmann::json& description, std::vector<nlohmann::json>& descriptions,
               Cluster& cluster) {
  const auto known = std::find(descriptions.begin(), descriptions.end(), description);
  const int index = static_cast<int>(known - descriptions.begin());
  if (known == descriptions.end()) {
    descriptions.push_back(description);
    cluster.node_devices.push_back(device);
  }
  return index;
}

// "nodes": [{"devices": 4, "device": "a100-80g"}, {"devices": 3}]; a node without a device has the cluster's.
void read_uneven_nodes(ObjectReader& reader, const nlohmann::json& nodes, Cluster& cluster,
                       std::vector<std::string>& assumptions, const Origins& origins) {
  const char* form = R"(expected a number, or a list such as [{"devices": 4, "device": "a100-80g"}, {"devices": 3}])";
  if (nodes.empty()) reader.fail("nodes", "is an empty list", form);
  const nlohmann::json* common = reader.find("device");
  reader.find("devices_per_node");
  std::vector<nlohmann::json> descriptions;
  cluster.devices_per_node = 0;
  int first_rank = 0;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    const std::string field = fmt::format("cluster.nodes.{}", index);
    if (!nodes[index].is_object()) reader.fail("nodes", fmt::format("{} is not an object", nodes[index].dump()), form);
    ObjectReader node(nodes[index], field, origins);
    ClusterNode read_node;
    read_fields(node_fields(), node, read_node);
    if (!node.has("devices")) node.fail_missing("devices", form);
    const nlohmann::json* own = node.find("device");
    node.refuse_unknown_keys();
    const nlohmann::json* device = own == nullptr ? common : own;
    if (device == nullptr) node.fail_missing("device", choices_help("", catalogue_names(CatalogueKind::kDevices)));
    const bool known = std::find(descriptions.begin(), descriptions.end(), *device) != descriptions.end();
    std::vector<std::string> repeated;
    const Device read_one = read_device(*device, own == nullptr ? "cluster.device" : field + ".device",
                                        known ? repeated : assumptions, origins);
    read_node.first_rank = first_rank;
    read_node.device = add_device(read_one, *device, descriptions, cluster);
    cluster.uneven_nodes.push_back(read_node);
    cluster.devices_per_node = std::max(cluster.devices_per_node, read_node.devices);
    first_rank += read_node.devices;
  }
  cluster.nodes = static_cast<int>(nodes.size());
  cluster.device = cluster.node_devices.front();
}

}  // namespace

namespace {

bool is_complete_device(const nlohmann::json& values) {
  const auto keys = {"generation", "peak", "memory_capacity", "memory_bandwidth", "multiprocessors"};
  return std::all_of(keys.begin(), keys.end(), [&values](const char* key) { return values.contains(key); });
}

// An inline device may have a new name. Figures given together with a catalogue name override its entry.
bool starts_from_catalogue(const nlohmann::json& value, const nlohmann::json& values) {
  if (!values.contains("name")) return false;
  if (value.is_string() || !values.contains("peak")) return true;
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kDevices);
  const bool known =
      std::any_of(names.begin(), names.end(), [&values](const std::string& name) { return values.at("name") == name; });
  return known && !is_complete_device(values);
}

}  // namespace

Device read_device(const nlohmann::json& value, const std::string& field, std::vector<std::string>& assumptions,
                   const Origins& origins) {
  if (!value.is_string() && !value.is_object()) {
    throw ConfigError({field, fmt::format("{} is neither a name nor an object", value.dump()), origins.where(field),
                       choices_help("", catalogue_names(CatalogueKind::kDevices))});
  }
  nlohmann::json values = value.is_string() ? nlohmann::json{{"name", value}} : value;
  if (starts_from_catalogue(value, values)) {
    const nlohmann::json given = values;
    values = with_catalogue_entry(CatalogueKind::kDevices, values, field, origins);
    const nlohmann::json known = catalogue_values(CatalogueKind::kDevices, values.at("name").get<std::string>());
    // A figure of one precision leaves the other precisions unchanged.
    for (const char* key : {"peak", "gemm_efficiency_by_precision"}) {
      if (!given.contains(key) || !given[key].is_object() || !known.contains(key)) continue;
      values[key] = known[key];
      values[key].update(given[key]);
    }
  }

  ObjectReader reader(values, field, origins);
  Device device;
  device.name = "inline";
  read_fields(device_fields(), reader, device);
  device.description = reader.text("description").value_or("");
  const bool gives_gemm = value.is_object() && value.contains("gemm_efficiency");
  check_clock(reader, device);
  settle_efficiencies(reader, device, gives_gemm, assumptions);
  read_precision_efficiencies(reader, device, gives_gemm);
  device.gemm_kernel = read_gemm_kernel(reader);
  reader.refuse_unknown_keys();
  return device;
}

namespace {

// If the device's generation differs from that of the cluster's usual device, the cluster's links remain, although no
// such nodes are sold.
void note_foreign_links(const Cluster& cluster, const std::string& usual_device,
                        std::vector<std::string>& assumptions) {
  const nlohmann::json usual = catalogue_values(CatalogueKind::kDevices, usual_device);
  if (usual.is_null() || usual.at("generation") == name_of(cluster.device.generation)) return;
  assumptions.push_back(
      fmt::format("device {} is placed in nodes of {}, with the links and network cards that these have for {}: give "
                  "cluster.intra_bandwidth, or choose a cluster with that device (flopcast catalog clusters)",
                  cluster.device.name, cluster.name, usual_device));
}

}  // namespace

Cluster read_cluster(ObjectReader& root, const DeviceProfile* profile, std::vector<std::string>& assumptions,
                     const Origins& origins) {
  const nlohmann::json nothing = nlohmann::json::object();
  const nlohmann::json* value = root.find("cluster");
  // A profile may contain a whole cluster.
  if (value == nullptr && profile != nullptr && profile->cluster.contains("intra_bandwidth")) value = &nothing;
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kClusters);
  if (value == nullptr)
    root.fail_missing("cluster",
                      "give --cluster [Nx]NAME, such as 8xdgx-a100-80g or 64xh100; see: flopcast catalog clusters");
  if (!value->is_string() && !value->is_object()) {
    root.fail("cluster", fmt::format("{} is neither a name nor an object", value->dump()), choices_help("", names));
  }
  nlohmann::json values = value->is_string() ? nlohmann::json{{"name", *value}} : *value;
  // The short form "8xdgx-a100-80g" may be combined with other keys; an explicit number of nodes takes precedence.
  if (values.contains("name") && values.at("name").is_string()) {
    nlohmann::json short_form = from_short_form(values.at("name").get<std::string>());
    short_form.update(values);
    short_form["name"] = from_short_form(values.at("name").get<std::string>()).at("name");
    values = std::move(short_form);
  }
  // A cluster with all required figures may have a new name.
  const bool complete =
      values.contains("device") && values.contains("intra_bandwidth") && values.contains("nic_bandwidth");
  const bool labelled = complete && values.contains("name") && values.at("name").is_string() &&
                        std::find(names.begin(), names.end(), values.at("name").get<std::string>()) == names.end();
  nlohmann::json entry = nlohmann::json::object();
  if (values.contains("name") && !labelled) {
    const std::string field = value->is_string() ? "cluster" : "cluster.name";
    entry = catalogue_entry(CatalogueKind::kClusters, values, field, origins);
  }
  // Figures without a device name apply to the cluster's device: --cluster.device.tdp 700W.
  if (values.contains("device") && values.at("device").is_object() && !values.at("device").contains("name") &&
      !is_complete_device(values.at("device")) && entry.contains("device")) {
    values["device"]["name"] = entry.at("device");
  }
  const bool own_links = values.contains("intra_bandwidth") || !entry.contains("device");
  const std::string usual_device = own_links ? "" : entry.at("device").get<std::string>();
  if (profile != nullptr) {
    values = overlay_profile(*profile, values, entry, origins);
  } else {
    entry.update(values);
    values = std::move(entry);
  }

  ObjectReader reader(values, "cluster", origins);
  Cluster cluster;
  cluster.name = "inline";
  const nlohmann::json* nodes = reader.find("nodes");
  const bool uneven = nodes != nullptr && nodes->is_array();
  if (!uneven) {
    if (!reader.has("devices_per_node")) reader.fail_missing("devices_per_node", "required for an inline cluster");
    if (!reader.has("device")) {
      reader.fail_missing("device", choices_help("", catalogue_names(CatalogueKind::kDevices)));
    }
    cluster.device = read_device(*reader.find("device"), "cluster.device", assumptions, origins);
  }
  read_fields(cluster_fields(), reader, cluster);
  if (!uneven && !own_links) note_foreign_links(cluster, usual_device, assumptions);
  cluster.description = reader.text("description").value_or("");
  if (uneven) read_uneven_nodes(reader, *nodes, cluster, assumptions, origins);
  cluster.links = read_links(reader);
  if (profile != nullptr) cluster.curves = curves_on_links_of(cluster, *profile);
  if (reader.has("curves")) cluster.curves = read_group_curves(reader);
  if (const nlohmann::json* network = reader.find("network")) cluster.network = read_network(*network, origins);
  reader.refuse_unknown_keys();
  check_network(cluster, origins, assumptions);
  if (profile == nullptr) return cluster;
  for (std::string& sentence : profile_assumptions(*profile, cluster)) assumptions.push_back(std::move(sentence));
  return cluster;
}

}  // namespace flopcast
