#include "model/hardware/cluster.hpp"

#include <algorithm>
#include <cstddef>

namespace flopcast {

int Cluster::devices() const {
  if (!uneven()) return nodes * devices_per_node;
  return uneven_nodes.back().first_rank + uneven_nodes.back().devices;
}

int Cluster::uneven_node_of(int rank) const {
  const auto after = std::upper_bound(uneven_nodes.begin(), uneven_nodes.end(), rank,
                                      [](int value, const ClusterNode& node) { return value < node.first_rank; });
  return static_cast<int>(after - uneven_nodes.begin()) - 1;
}

const Device& Cluster::device_of(int rank) const {
  if (!uneven()) return device;
  return node_devices[static_cast<std::size_t>(uneven_nodes[static_cast<std::size_t>(node_of(rank))].device)];
}

const MessageCurve* Cluster::curve(MessageKind kind, int ranks, int over_nodes) const {
  for (const GroupCurve& group : curves) {
    if (group.kind == kind && group.ranks == ranks && group.nodes == over_nodes) return &group.curve;
  }
  return nullptr;
}

}  // namespace flopcast
