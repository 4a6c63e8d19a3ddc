#pragma once

#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "model/hardware/network_fabric.hpp"
#include "reports/svg/fabric_svg.hpp"
#include "sim/forecast/network_step.hpp"

namespace flopcast {

/// The links of a cluster's network by what they join: how many, of what bandwidth.
Table fabric_table(const Cluster& cluster, const NetworkFabric& fabric);

/// Nodes, and the switches of each tier above them; of fabrics without tiers the nodes alone. Loads by link of the
/// fabric, or none.
FabricPicture fabric_picture(const Cluster& cluster, const NetworkFabric& fabric, const std::vector<LinkLoad>& loads);

}  // namespace flopcast
