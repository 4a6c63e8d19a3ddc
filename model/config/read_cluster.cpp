#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/sections.hpp"

namespace flopcast {

namespace {

constexpr int kMostNodes = 1'000'000;
constexpr int kMostDevicesPerNode = 1'024;
constexpr int kMostMultiprocessors = 100'000;

// "8xdgx-a100-80g" -> {"name": "dgx-a100-80g", "nodes": 8}.
nlohmann::json from_short_form(const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  constexpr std::size_t kMostDigits = 9;
  if (digits == 0 || digits > kMostDigits || digits >= text.size() || text[digits] != 'x') return {{"name", text}};
  return {{"name", text.substr(digits + 1)}, {"nodes", std::stoi(text.substr(0, digits))}};
}

nlohmann::json catalogue_entry(CatalogueKind kind, const nlohmann::json& object, const std::string& field,
                               const Origins& origins) {
  const nlohmann::json& name = object.at("name");
  const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
  nlohmann::json values = catalogue_values(kind, text);
  if (values.is_null()) {
    const std::string_view kind_name = name_of(kind);
    throw ConfigError({field, fmt::format("unknown {} \"{}\"", kind_name.substr(0, kind_name.size() - 1), text),
                       origins.where(field), choices_help(text, catalogue_names(kind))});
  }
  return values;
}

nlohmann::json with_catalogue_entry(CatalogueKind kind, const nlohmann::json& object, const std::string& field,
                                    const Origins& origins) {
  nlohmann::json values = catalogue_entry(kind, object, field, origins);
  values.update(object);
  return values;
}

GemmKernel read_gemm_kernel(ObjectReader& reader) {
  GemmKernel kernel;
  auto values = reader.object("gemm_kernel");
  if (!values) return kernel;
  constexpr int kLargestTile = 4'096;
  constexpr int kDeepest = 1'000'000;
  constexpr double kLargestShare = 1e6;  // operands that stay in a cache stream faster than memory does
  kernel.tile = values->whole("tile", 0, kLargestTile).value_or(kernel.tile);
  if (const auto depth = values->whole("overhead_depth", 0, kDeepest)) {
    kernel.overhead_depth = kernel.weight_gradient_depth = *depth;
  }
  kernel.memory_efficiency = values->fraction("memory_efficiency", kLargestShare).value_or(kernel.memory_efficiency);
  kernel.overlapped = values->boolean("overlapped").value_or(kernel.overlapped);
  kernel.wave_share = values->fraction("wave_share", 1.0).value_or(kernel.wave_share);
  values->refuse_unknown_keys();
  return kernel;
}

void read_peaks(ObjectReader& reader, Device& device) {
  auto peaks = reader.object("peak");
  if (!peaks) reader.fail_missing("peak", R"(such as {"bf16": "312TFLOP/s"})");
  for (std::size_t index = 0; index < precision_names().size(); ++index) {
    device.peak[index] = FlopsPerSecond(peaks->quantity(precision_names()[index], Dimension::kFlopRate).value_or(0.0));
  }
  peaks->refuse_unknown_keys();
}

// Products that were timed by themselves (kernel_efficiency) run at a share of that rate in a training step. Who gives
// gemm_efficiency says what it is there.
std::optional<double> sustained_efficiency(ObjectReader& reader, const Device& device, bool is_given,
                                           std::vector<std::string>& assumptions) {
  const auto kernels = reader.fraction("kernel_efficiency", 1.0);
  const auto sustained = reader.fraction("sustained_share", 1.0);
  const auto otherwise = reader.fraction("gemm_efficiency", 1.0);
  if (!kernels || is_given) return otherwise;
  assumptions.push_back(
      sustained ? fmt::format("products on {} reach {:.3g} of the peak alone, and {} of that rate in a training step",
                              device.name, *kernels, *sustained)
                : fmt::format("products on {} reach {:.3g} of the peak in a training step as they do alone: nobody has "
                              "compared the two",
                              device.name, *kernels));
  return *kernels * sustained.value_or(1.0);
}

// By precision, where it was measured: in training steps, or of products by themselves.
void read_precision_efficiencies(ObjectReader& reader, Device& device, bool is_given) {
  const auto read = [&](std::string_view key, double sustained, bool counts) {
    auto shares = reader.object(key);
    if (!shares) return;
    for (std::size_t index = 0; index < precision_names().size(); ++index) {
      const auto share = shares->fraction(precision_names()[index], 1.0);
      if (share && counts) device.gemm_efficiency_by_precision[index] = *share * sustained;
    }
    shares->refuse_unknown_keys();
  };
  read("kernel_efficiency_by_precision", reader.fraction("sustained_share", 1.0).value_or(1.0), !is_given);
  read("gemm_efficiency_by_precision", 1.0, true);
}

// What an inline device need not say: its generation answers, and the job says that it did.
void read_efficiencies(ObjectReader& reader, Device& device, bool gives_gemm, std::vector<std::string>& assumptions) {
  const DeviceDefaults& defaults = device_defaults(device.generation);
  std::vector<std::string> assumed;
  const auto or_default = [&assumed](std::string_view key, std::optional<double> number, double otherwise) {
    if (!number) assumed.push_back(fmt::format("{} {}", key, otherwise));
    return number.value_or(otherwise);
  };
  const auto share = [&reader, &or_default](std::string_view key, double otherwise) {
    return or_default(key, reader.fraction(key, 1.0), otherwise);
  };
  device.gemm_efficiency = or_default("gemm_efficiency", sustained_efficiency(reader, device, gives_gemm, assumptions),
                                      defaults.gemm_efficiency);
  device.memory_efficiency = share("memory_efficiency", defaults.memory_efficiency);
  device.flash_forward_efficiency = share("flash_forward_efficiency", defaults.flash_forward_efficiency);
  device.flash_backward_efficiency = share("flash_backward_efficiency", defaults.flash_backward_efficiency);
  const auto launch = reader.quantity("kernel_launch", Dimension::kTime);
  if (launch && *launch <= 0.0) reader.fail("kernel_launch", "is zero", "expected more than zero");
  if (!launch) assumed.push_back(fmt::format("kernel_launch {} us", defaults.kernel_launch.value() * 1e6));
  device.kernel_launch = launch ? Seconds(*launch) : defaults.kernel_launch;
  if (assumed.empty()) return;
  assumptions.push_back(fmt::format("device {} has {} of generation {} ({})", device.name, fmt::join(assumed, ", "),
                                    generation_names()[static_cast<std::size_t>(device.generation)], defaults.source));
}

// The index of a device among the distinct ones; nodes that name the same device share it.
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

// "nodes": [{"devices": 4, "device": "a100-80g"}, {"devices": 3}]: a node without a device has the cluster's.
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
    if (!nodes[index].is_object()) reader.fail("nodes", fmt::format("{} is no object", nodes[index].dump()), form);
    ObjectReader node(nodes[index], field, origins);
    const auto devices = node.whole("devices", 1, kMostDevicesPerNode);
    if (!devices) node.fail_missing("devices", form);
    const nlohmann::json* own = node.find("device");
    node.refuse_unknown_keys();
    const nlohmann::json* device = own == nullptr ? common : own;
    if (device == nullptr) node.fail_missing("device", choices_help("", catalogue_names(CatalogueKind::kDevices)));
    const bool known = std::find(descriptions.begin(), descriptions.end(), *device) != descriptions.end();
    std::vector<std::string> repeated;
    const Device read = read_device(*device, own == nullptr ? "cluster.device" : field + ".device",
                                    known ? repeated : assumptions, origins);
    cluster.uneven_nodes.push_back({first_rank, *devices, add_device(read, *device, descriptions, cluster)});
    cluster.devices_per_node = std::max(cluster.devices_per_node, *devices);
    first_rank += *devices;
  }
  cluster.nodes = static_cast<int>(nodes.size());
  cluster.device = cluster.node_devices.front();
}

}  // namespace

Device read_device(const nlohmann::json& value, const std::string& field, std::vector<std::string>& assumptions,
                   const Origins& origins) {
  if (!value.is_string() && !value.is_object()) {
    throw ConfigError({field, fmt::format("{} is neither a name nor an object", value.dump()), origins.where(field),
                       choices_help("", catalogue_names(CatalogueKind::kDevices))});
  }
  nlohmann::json values = value.is_string() ? nlohmann::json{{"name", value}} : value;
  const bool named =
      values.contains("name") &&
      (value.is_string() || !values.contains("peak"));  // a full inline device may carry a name of its own
  if (named) values = with_catalogue_entry(CatalogueKind::kDevices, values, field, origins);

  ObjectReader reader(values, field, origins);
  const auto quantity = [&reader](std::string_view key, Dimension dimension) {
    const auto number = reader.quantity(key, dimension);
    if (!number) reader.fail_missing(key, "an inline device needs it");
    if (*number <= 0.0) reader.fail(key, "is zero", "expected more than zero");
    return *number;
  };
  Device device;
  device.name = reader.text("name").value_or("inline");
  device.description = reader.text("description").value_or("");
  const auto generation = reader.choice("generation", generation_names());
  if (!generation) reader.fail_missing("generation", choices_help("", generation_names()));
  device.generation = static_cast<GpuGeneration>(*generation);
  read_peaks(reader, device);
  device.memory_capacity = Bytes(quantity("memory_capacity", Dimension::kBytes));
  device.memory_bandwidth = BytesPerSecond(quantity("memory_bandwidth", Dimension::kBandwidth));
  const auto multiprocessors = reader.whole("multiprocessors", 1, kMostMultiprocessors);
  if (!multiprocessors) reader.fail_missing("multiprocessors", "an inline device needs it");
  device.multiprocessors = *multiprocessors;
  device.tdp_w = reader.quantity("tdp", Dimension::kPower).value_or(0.0);
  const bool gives_gemm = value.is_object() && value.contains("gemm_efficiency");
  read_efficiencies(reader, device, gives_gemm, assumptions);
  read_precision_efficiencies(reader, device, gives_gemm);
  device.gemm_kernel = read_gemm_kernel(reader);
  reader.refuse_unknown_keys();
  return device;
}

Cluster read_cluster(ObjectReader& root, const DeviceProfile* profile, std::vector<std::string>& assumptions,
                     const Origins& origins) {
  const nlohmann::json nothing = nlohmann::json::object();
  const nlohmann::json* value = root.find("cluster");
  // A profile may tell everything there is to a cluster.
  if (value == nullptr && profile != nullptr && profile->cluster.contains("intra_bandwidth")) value = &nothing;
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kClusters);
  if (value == nullptr)
    root.fail_missing("cluster", fmt::format("give --cluster [Nx]NAME; {}", choices_help("", names)));
  if (!value->is_string() && !value->is_object()) {
    root.fail("cluster", fmt::format("{} is neither a name nor an object", value->dump()), choices_help("", names));
  }
  nlohmann::json values = value->is_string() ? nlohmann::json{{"name", *value}} : *value;
  // The short form "8xdgx-a100-80g" may come with keys beside it, of which an explicit count of nodes wins.
  if (values.contains("name") && values.at("name").is_string()) {
    nlohmann::json short_form = from_short_form(values.at("name").get<std::string>());
    short_form.update(values);
    short_form["name"] = from_short_form(values.at("name").get<std::string>()).at("name");
    values = std::move(short_form);
  }
  // A cluster that says everything may carry a name of its own.
  const bool complete =
      values.contains("device") && values.contains("intra_bandwidth") && values.contains("nic_bandwidth");
  const bool labelled = complete && values.contains("name") && values.at("name").is_string() &&
                        std::find(names.begin(), names.end(), values.at("name").get<std::string>()) == names.end();
  nlohmann::json entry = nlohmann::json::object();
  if (values.contains("name") && !labelled) {
    const std::string field = value->is_string() ? "cluster" : "cluster.name";
    entry = catalogue_entry(CatalogueKind::kClusters, values, field, origins);
  }
  if (profile != nullptr) {
    values = overlay_profile(*profile, values, entry, origins);
  } else {
    entry.update(values);
    values = std::move(entry);
  }

  ObjectReader reader(values, "cluster", origins);
  const auto quantity = [&reader](std::string_view key, Dimension dimension) {
    const auto number = reader.quantity(key, dimension);
    if (!number) reader.fail_missing(key, "an inline cluster needs it");
    return *number;
  };
  const auto bandwidth = [&reader, &quantity](std::string_view key) {
    const double rate = quantity(key, Dimension::kBandwidth);
    if (rate <= 0.0) reader.fail(key, "is zero", "expected more than zero");
    return BytesPerSecond(rate);
  };
  Cluster cluster;
  cluster.name = reader.text("name").value_or("inline");
  cluster.description = reader.text("description").value_or("");
  const nlohmann::json* nodes = reader.find("nodes");
  if (nodes != nullptr && nodes->is_array()) {
    read_uneven_nodes(reader, *nodes, cluster, assumptions, origins);
  } else {
    cluster.nodes = reader.whole("nodes", 1, kMostNodes).value_or(1);
    const auto devices = reader.whole("devices_per_node", 1, kMostDevicesPerNode);
    if (!devices) reader.fail_missing("devices_per_node", "an inline cluster needs it");
    cluster.devices_per_node = *devices;
    const nlohmann::json* device = reader.find("device");
    if (device == nullptr) reader.fail_missing("device", choices_help("", catalogue_names(CatalogueKind::kDevices)));
    cluster.device = read_device(*device, "cluster.device", assumptions, origins);
  }
  cluster.intra_bandwidth = bandwidth("intra_bandwidth");
  cluster.intra_efficiency = reader.fraction("intra_efficiency", 1.0).value_or(1.0);
  cluster.intra_latency = Seconds(quantity("intra_latency", Dimension::kTime));
  cluster.in_switch_reduction = reader.boolean("in_switch_reduction").value_or(true);
  cluster.nics_per_node = reader.whole("nics_per_node", 1, kMostDevicesPerNode).value_or(1);
  cluster.nic_bandwidth = bandwidth("nic_bandwidth");
  cluster.nic_efficiency = reader.fraction("nic_efficiency", 1.0).value_or(1.0);
  cluster.inter_latency = Seconds(quantity("inter_latency", Dimension::kTime));
  cluster.host_bandwidth = BytesPerSecond(reader.quantity("host_bandwidth", Dimension::kBandwidth).value_or(0.0));
  cluster.host_memory_bandwidth =
      BytesPerSecond(reader.quantity("host_memory_bandwidth", Dimension::kBandwidth).value_or(0.0));
  reader.refuse_unknown_keys();
  if (profile == nullptr) return cluster;
  cluster.curves = profile->curves;
  for (std::string& sentence : profile_assumptions(*profile)) assumptions.push_back(std::move(sentence));
  return cluster;
}

}  // namespace flopcast
