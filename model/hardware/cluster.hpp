#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/hardware/device.hpp"
#include "model/hardware/network.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// From `from` bytes on a message takes alpha + beta · bytes.
struct MessageSegment {
  Bytes from;
  Seconds alpha;
  double beta = 0.0;  ///< seconds a byte
};

/// The measured time of one kind of message over its size: up to four affine pieces, because protocols change with the
/// size and one alpha and beta miss by tens of percent. A larger message never takes less time: where a piece starts
/// below the end of one before, that end's time stands (running maximum). Beyond the largest measured size the last
/// piece goes on.
class MessageCurve {
 public:
  MessageCurve() = default;
  /// Segments by ascending `from`, the first from 0; alpha and beta at least 0 (InternalError).
  explicit MessageCurve(std::vector<MessageSegment> segments);

  Seconds time(Bytes bytes) const;
  const std::vector<MessageSegment>& segments() const { return segments_; }

 private:
  std::vector<MessageSegment> segments_;
  std::vector<Seconds> floors_;  // what the pieces before reach
};

/// What a profile tells curves of: nothing is a message from one rank to another.
inline constexpr std::optional<CollectiveKind> kCurveKinds[] = {
    std::nullopt, CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
    CollectiveKind::kAllToAll};

/// A curve with the group it was measured on, which had the network to itself.
struct GroupCurve {
  std::optional<CollectiveKind> collective;  ///< one of kCurveKinds
  int ranks = 2;
  int nodes = 1;
  MessageCurve curve;

  /// Of the kind: "p2p", or the collective's.
  std::string_view name() const { return collective ? name_of(*collective) : "p2p"; }
};

/// A node of a cluster whose nodes differ.
struct ClusterNode {
  int first_rank = 0;
  int devices = 0;
  int device = 0;  ///< index into Cluster::node_devices
};

/// Direct links between two devices of a node.
struct DeviceLink {
  int one = 0;  ///< place in the node, from 0
  int other = 0;
  int links = 1;  ///< side by side
};

/// Nodes of devices, joined inside by a switch (NVLink) and outside by network cards. Ranks fill the nodes in order.
/// Every bandwidth is per direction. Nodes may differ in how many devices they hold and in which; links and network
/// cards are alike on all. Where `network` says what joins the nodes, groups of ranks share its links.
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
  bool network_reduction = false;         ///< the network's switches add up (InfiniBand SHARP) and NCCL lets them
  int nics_per_node = 1;
  BytesPerSecond nic_bandwidth;  ///< of one network card, datasheet
  double nic_efficiency = 1.0;
  Seconds inter_latency;                 ///< of a point-to-point message
  Seconds hop_latency;                   ///< added to each step of a collective from node to node; 0: NCCL's own 14 us
  std::vector<DeviceLink> links;         ///< between devices of a node that has no switch; empty: a switch
  BytesPerSecond host_bandwidth;         ///< of one device to its host (PCIe or C2C), datasheet; zero: unknown
  BytesPerSecond host_memory_bandwidth;  ///< of a node's host memory, reads and writes together; zero: unknown
  std::vector<GroupCurve> curves;        ///< measured messages, in place of the links' figures for those groups
  std::optional<Network> network;        ///< nothing, or of topology none: every group has its links to itself

  bool uneven() const { return !uneven_nodes.empty(); }
  int devices() const;
  int node_of(int rank) const { return uneven() ? uneven_node_of(rank) : rank / devices_per_node; }
  const Device& device_of(int rank) const;
  /// The measured curve of such a group; null when there is none.
  const MessageCurve* curve(std::optional<CollectiveKind> collective, int ranks, int over_nodes) const;
  /// What a collective's rings carry among the first `devices` devices of a node, before intra_efficiency. A switch:
  /// intra_bandwidth. A graph of links (DGX-1's hybrid cube mesh): each ring enters and leaves every device over a link
  /// of its own, so there are at most min(least links of a device, 2 · links / devices) rings, and NCCL finds as many
  /// whole ones: 1, 2, 4 and 6 among 2, 3, 4 and 8 V100 (22.5, 45, 85 and 134 GB/s of bus bandwidth in
  /// nccl-tests, calibrate/validation/published/nccl_allreduce.json). intra_bandwidth is that of all links of a device.
  /// A node with fewer devices than `links` names has what joins those. Devices with no ring of links between them
  /// (bridges of pairs, a row) go over the host: host_bandwidth.
  BytesPerSecond ring_bandwidth(int devices) const;
  bool shares_links() const { return network && network->topology != Topology::kNone; }
  BytesPerSecond node_network_bandwidth() const { return nic_bandwidth * static_cast<double>(nics_per_node); }

 private:
  int uneven_node_of(int rank) const;
};

}  // namespace flopcast
