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
