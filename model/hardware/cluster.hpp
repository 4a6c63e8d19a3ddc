#pragma once

#include <string>
#include <vector>

#include "model/hardware/device.hpp"
#include "model/hardware/message_curve.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// A node of a cluster whose nodes differ.
struct ClusterNode {
  int first_rank = 0;
  int devices = 0;
  int device = 0;  ///< index into Cluster::node_devices
};

/// Nodes of devices, joined inside by a switch (NVLink) and outside by network cards. Ranks fill the nodes in order.
/// Every bandwidth is per direction. Nodes may differ in how many devices they hold and in which; links and network
/// cards are alike on all. Left out: oversubscribed fabrics and topologies between nodes.
struct Cluster {
  std::string name;
  std::string description;
  int nodes = 1;
  int devices_per_node = 1;               ///< of the fullest node where they differ
  Device device;                          ///< of the first node where they differ
  std::vector<ClusterNode> uneven_nodes;  ///< empty when all nodes are alike
  std::vector<Device> node_devices;       ///< the distinct devices of uneven nodes
  BytesPerSecond intra_bandwidth;         ///< of one device to the others of its node, datasheet
  double intra_efficiency = 1.0;          ///< the share NCCL's rings reach
  Seconds intra_latency;                  ///< of a point-to-point message
  bool in_switch_reduction = true;        ///< the switch can add up (NVLink SHARP), where the GPU generation can use it
  int nics_per_node = 1;
  BytesPerSecond nic_bandwidth;  ///< of one network card, datasheet
  double nic_efficiency = 1.0;
  Seconds inter_latency;                 ///< of a point-to-point message
  BytesPerSecond host_bandwidth;         ///< of one device to its host (PCIe or C2C), datasheet; zero: unknown
  BytesPerSecond host_memory_bandwidth;  ///< of a node's host memory, reads and writes together; zero: unknown
  std::vector<GroupCurve> curves;        ///< measured messages, in place of the links' figures for those groups

  bool uneven() const { return !uneven_nodes.empty(); }
  int devices() const;
  int node_of(int rank) const { return uneven() ? uneven_node_of(rank) : rank / devices_per_node; }
  const Device& device_of(int rank) const;
  /// The measured curve of such a group; null when there is none.
  const MessageCurve* curve(MessageKind kind, int ranks, int over_nodes) const;
  BytesPerSecond node_network_bandwidth() const { return nic_bandwidth * static_cast<double>(nics_per_node); }

 private:
  int uneven_node_of(int rank) const;
};

}  // namespace flopcast
