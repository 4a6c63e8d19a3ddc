#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hardware/device.hpp"

namespace flopcast {

/// How the devices of a node are wired, as `nvidia-smi topo -m` prints it.
struct NodeTopology {
  std::vector<std::vector<int>> links;  ///< NVLinks between each two devices; zero: through PCIe or the host
  int network_cards = 0;
  int near_network_cards = 0;  ///< those that share a PCIe switch (PIX, PXB) with a device

  int devices() const { return static_cast<int>(links.size()); }
};

/// Reads the matrix wherever it stands in the text; lines may have prefixes, the header terminal escapes, and network
/// cards either name (mlx5_0, NIC0). Throws ConfigError with `file:line`: no matrix, a row that is cut or missing, a
/// cell that is no connection, two halves of the matrix that differ.
NodeTopology read_topology(std::string_view text, const std::string& file);

struct TopologyFacts {
  nlohmann::json cluster;          ///< keys of a job's cluster section
  std::vector<std::string> notes;  ///< what the matrix leaves open
};

/// The cluster keys that the matrix tells: devices_per_node, nics_per_node (those near a device, where there are such),
/// and intra_bandwidth, links times a link's rate per direction: 25 GB/s of NVLink 2 to 4 (V100, A100, H100 and H200),
/// 50 GB/s of NVLink 5 (B200) (NVIDIA, NVLink and NVSwitch, 2024). A device with more links to all others together than
/// it has (6, 12, 18, 18) reaches them through a switch, which takes all its links to any of them; else the links to
/// its peers add up, and nothing between them can reduce. No bandwidth is told where the generation is not known or has
/// no NVLink, or where NVLink joins only some of the devices.
TopologyFacts topology_facts(const NodeTopology& topology, std::optional<GpuGeneration> generation);

}  // namespace flopcast
