#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/flow/flow_program.hpp"

namespace flopcast {

/// Flows on links as described by a file, for `flopcast network flows`:
///   links  [{name, bandwidth}], bytes per second
///   flows  [{src, dst, bytes, start, links, rate?, after?, weights?}]: `links` are positions in the list, in route
///          order; `rate` is the flow's own cap; `after` lists the flows whose latest end starts it, instead of
///          `start`; `weights` are how often it uses each of its links (a coupled flow)
/// Other properties of a case (name, pattern, topology, ranks, kind, its expected finish) have no effect. A case
/// without `links` has a `topology` instead, whose routes its flows take from `src` to `dst`:
///   star        hosts bandwidth [down_bandwidth]
///   leaf-spine  leaves hosts_per_leaf spines bandwidth uplink_bandwidth [routing dst|hash] [seed]
///   three-level pods leaves_per_pod hosts_per_leaf bandwidth leaf_uplink pod_uplink
///   fat-tree    down[] up[] bandwidth, a number for each level      torus  dims[] bandwidth
///   dragonfly   groups chassis routers nodes bandwidth [green_links black_links blue_links]
///   rail        nodes gpus_per_node nodes_per_segment spines pxn nvlink nic uplink_bandwidth
/// and `degraded`, {link: bandwidth}. model/hardware/fabric.hpp describes each topology.
struct FlowCase {
  std::string name;  ///< the file's name if it has none
  std::vector<std::string> links;
  std::vector<std::string> flows;  ///< "0 -> 3", or the kind of exchange
  FlowProgram program;
};

/// Throws ConfigError with field and place.
FlowCase read_flow_case(std::string_view text, const std::string& file);

/// {"finish": [seconds]}, in the order of the flows.
std::string write_finish_times(const std::vector<double>& finish);

}  // namespace flopcast
