#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/hardware/device.hpp"
#include "model/hardware/network.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// From `from` bytes up, a message takes alpha + beta · bytes.
struct MessageSegment {
  Bytes from;
  Seconds alpha;
  double beta = 0.0;  ///< seconds per byte
};

/// Measured time of one kind of message as a function of its size: up to four affine pieces, because protocols change
/// with the size and a single alpha and beta would be off by tens of percent. A larger message never takes less time:
/// where a piece starts below the end of an earlier one, the earlier time applies (running maximum). The last piece
/// extends beyond the largest measured size.
class MessageCurve {
 public:
  MessageCurve() = default;
  /// Segments in ascending order of `from`, starting at 0; alpha and beta at least 0 (InternalError).
  explicit MessageCurve(std::vector<MessageSegment> segments);

  Seconds time(Bytes bytes) const;
  const std::vector<MessageSegment>& segments() const { return segments_; }

 private:
  std::vector<MessageSegment> segments_;
  std::vector<Seconds> floors_;  // times reached by the preceding pieces
};

/// The kinds of message that profiles have curves of; nullopt is a message from one rank to another.
inline constexpr std::optional<CollectiveKind> kCurveKinds[] = {
    std::nullopt, CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
    CollectiveKind::kAllToAll};

/// A curve and the group it was measured on, which had the network to itself.
struct GroupCurve {
  std::optional<CollectiveKind> collective;  ///< one of kCurveKinds
  int ranks = 2;
  int nodes = 1;
  MessageCurve curve;

  /// Name of the kind: "p2p", or the collective's.
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
  int one = 0;  ///< index within the node, from 0
  int other = 0;
  int links = 1;  ///< number of parallel links
};

/// Nodes of devices, connected by a switch (NVLink) inside and by network cards outside. Ranks fill the nodes in order.
/// Bandwidths are per direction. Nodes may differ in the number and type of their devices; links and network cards are
/// the same on all. If `network` specifies the connections between nodes, groups of ranks share its links.
struct Cluster {
  std::string name;
  std::string description;
  int nodes = 1;
  int devices_per_node = 1;               ///< of the fullest node if they differ
  Device device;                          ///< of the first node if they differ
  std::vector<ClusterNode> uneven_nodes;  ///< empty if all nodes are alike
  std::vector<Device> node_devices;       ///< the distinct devices of uneven nodes
  BytesPerSecond intra_bandwidth;         ///< from one device to the others of its node, datasheet
  double intra_efficiency = 1.0;          ///< fraction that NCCL's rings reach
  Seconds intra_latency;                  ///< of a point-to-point message
  bool in_switch_reduction = true;        ///< the switch can reduce (NVLink SHARP), if the GPU generation supports it
  bool network_reduction = false;         ///< the network's switches can reduce (InfiniBand SHARP) and NCCL uses it
  int nics_per_node = 1;
  BytesPerSecond nic_bandwidth;  ///< of one network card, datasheet
  double nic_efficiency = 1.0;
  Seconds inter_latency;                 ///< of a point-to-point message
  Seconds hop_latency;                   ///< added to each step of a collective between nodes; 0: NCCL's own 14 us
  std::vector<DeviceLink> links;         ///< between devices of a node without a switch; empty: a switch
  BytesPerSecond host_bandwidth;         ///< between one device and its host (PCIe or C2C), datasheet; zero: unknown
  double host_speed = 1.0;               ///< single-thread speed relative to DGX H100's hosts (Xeon Platinum 8480C)
  BytesPerSecond host_memory_bandwidth;  ///< of a node's host memory, reads plus writes; zero: unknown
  std::vector<GroupCurve> curves;        ///< measured message times, which replace the links' figures for those groups
  std::optional<Network> network;        ///< absent or topology none: every group has its links to itself

  bool uneven() const { return !uneven_nodes.empty(); }
  int devices() const;
  int node_of(int rank) const { return uneven() ? uneven_node_of(rank) : rank / devices_per_node; }
  const Device& device_of(int rank) const;
  /// The measured curve of such a group; null if there is none.
  const MessageCurve* curve(std::optional<CollectiveKind> collective, int ranks, int over_nodes) const;
  /// Bandwidth of a collective's rings among the first `devices` devices of a node, before intra_efficiency. With a
  /// switch: intra_bandwidth. With a graph of links (DGX-1's hybrid cube mesh): each ring enters and leaves every
  /// device over a separate link, so there are at most min(fewest links of a device, 2 · links / devices) rings, and
  /// NCCL finds that many: 1, 2, 4 and 6 among 2, 3, 4 and 8 V100 (22.5, 45, 85 and 134 GB/s of bus bandwidth in
  /// nccl-tests, calibrate/validation/published/nccl_allreduce.json). intra_bandwidth is the total of a device's links.
  /// A node with fewer devices than `links` names has only the links between those. Devices without a ring of links
  /// (bridged pairs, a row) use the host: host_bandwidth.
  BytesPerSecond ring_bandwidth(int devices) const;
  bool shares_links() const { return network && network->topology != Topology::kNone; }
  BytesPerSecond node_network_bandwidth() const { return nic_bandwidth * static_cast<double>(nics_per_node); }

 private:
  int uneven_node_of(int rank) const;
};

}  // namespace flopcast
