#include "reports/result/cluster_json.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;

std::string rate(BytesPerSecond rate) {
  return fmt::format("{}GB/s", rate.value() / kGiga);
}

std::string time(Seconds time) {
  return fmt::format("{}us", time.value() / kMicro);
}

Json device_json(const Device& device) {
  Json peak = Json::object();
  for (std::size_t index = 0; index < precision_names().size(); ++index) {
    if (device.peak[index].value() <= 0.0) continue;
    peak[precision_names()[index]] = fmt::format("{}TFLOP/s", device.peak[index].value() / kTera);
  }
  Json json = {{"name", device.name},
               {"generation", generation_names()[static_cast<std::size_t>(device.generation)]},
               {"peak", std::move(peak)},
               {"memory_capacity", fmt::format("{}GiB", gibibytes(device.memory_capacity))},
               {"memory_bandwidth", rate(device.memory_bandwidth)},
               {"multiprocessors", device.multiprocessors},
               {"gemm_efficiency", device.gemm_efficiency},
               {"memory_efficiency", device.memory_efficiency},
               {"flash_forward_efficiency", device.flash_forward_efficiency},
               {"flash_backward_efficiency", device.flash_backward_efficiency},
               {"kernel_launch", time(device.kernel_launch)}};
  for (std::size_t index = 0; index < precision_names().size(); ++index) {
    const double share = device.gemm_efficiency_by_precision[index];
    if (share > 0.0) json["gemm_efficiency_by_precision"][precision_names()[index]] = share;
  }
  if (device.tdp_w > 0.0) json["tdp"] = fmt::format("{}W", device.tdp_w);
  return json;
}

Json nodes_json(const Cluster& cluster) {
  if (!cluster.uneven()) return cluster.nodes;
  Json nodes = Json::array();
  for (const ClusterNode& node : cluster.uneven_nodes) {
    nodes.push_back({{"devices", node.devices},
                     {"device", device_json(cluster.node_devices[static_cast<std::size_t>(node.device)])}});
  }
  return nodes;
}

}  // namespace

Json cluster_json(const Cluster& cluster) {
  Json json = {{"name", cluster.name},
               {"nodes", nodes_json(cluster)},
               {"intra_bandwidth", rate(cluster.intra_bandwidth)},
               {"intra_efficiency", cluster.intra_efficiency},
               {"intra_latency", time(cluster.intra_latency)},
               {"in_switch_reduction", cluster.in_switch_reduction},
               {"nics_per_node", cluster.nics_per_node},
               {"nic_bandwidth", rate(cluster.nic_bandwidth)},
               {"nic_efficiency", cluster.nic_efficiency},
               {"inter_latency", time(cluster.inter_latency)}};
  if (!cluster.uneven()) {
    json["devices_per_node"] = cluster.devices_per_node;
    json["device"] = device_json(cluster.device);
  }
  if (cluster.host_bandwidth.value() > 0) json["host_bandwidth"] = rate(cluster.host_bandwidth);
  if (cluster.host_memory_bandwidth.value() > 0) json["host_memory_bandwidth"] = rate(cluster.host_memory_bandwidth);
  return json;
}

}  // namespace flopcast
