#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/flow/flow_program.hpp"

namespace flopcast {

/// Flows on links as a file tells them, for `flopcast network flows`:
///   links  [{name, bandwidth}], bytes per second
///   flows  [{src, dst, bytes, start, links, rate?, after?, weights?}]: `links` by their place in the list, in the
///   order
///          of the route; `rate` the flow's own cap; `after` the flows whose latest end starts it, in place of `start`;
///          `weights` how often it uses each of its links (a coupled flow)
/// What else a case tells of itself (name, pattern, topology, ranks, kind, its expected finish) changes nothing.
/// A case without `links` has a `topology` instead, whose routes its flows take from `src` to `dst`:
///   star        hosts bandwidth [down_bandwidth]
///   leaf-spine  leaves hosts_per_leaf spines bandwidth uplink_bandwidth [routing dst|hash] [seed]
///   three-level pods leaves_per_pod hosts_per_leaf bandwidth leaf_uplink pod_uplink
///   fat-tree    down[] up[] bandwidth, a number for each level      torus  dims[] bandwidth
///   dragonfly   groups chassis routers nodes bandwidth [green_links black_links blue_links]
///   rail        nodes gpus_per_node nodes_per_segment spines pxn nvlink nic uplink_bandwidth
/// and `degraded`, {link: bandwidth}. model/hardware/fabric.hpp says what each is.
struct FlowCase {
  std::string name;  ///< the file's when it tells none
  std::vector<std::string> links;
  std::vector<std::string> flows;  ///< "0 -> 3", or what kind of exchange it is
  FlowProgram program;
};

/// Throws ConfigError with field and place.
FlowCase read_flow_case(std::string_view text, const std::string& file);

/// {"finish": [seconds]}, in the order of the flows.
std::string write_finish_times(const std::vector<double>& finish);

}  // namespace flopcast
