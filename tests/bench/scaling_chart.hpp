#pragma once

#include <string>
#include <vector>

namespace flopcast {

struct ScalingPoint {
  double actions = 0.0;
  double nanoseconds = 0.0;  ///< per action
};

/// An SVG of time per action over the number of actions, with a logarithmic x axis. A flat line means linear cost.
std::string scaling_chart(const std::vector<ScalingPoint>& points);

}  // namespace flopcast
