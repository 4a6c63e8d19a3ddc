#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/forecast/prepare.hpp"

namespace flopcast::realrun {

/// Whether and for how long actions sleep instead of computing. Times are as the user writes them: "5ms", or one a
/// stage, "5ms,6ms"; what is not given comes from the job's forecast, times `slow_down`.
struct Emulation {
  bool sleeps = false;
  std::optional<std::string> forward;
  std::optional<std::string> backward;
  std::optional<std::string> input_gradient;   ///< half of a given `backward` when absent
  std::optional<std::string> weight_gradient;  ///< half of a given `backward` when absent
  double slow_down = 1.0;
};

/// By stage of `program`; nothing when actions compute. Throws ConfigError.
std::vector<StageTimes> slept_times(const Emulation& emulation, const PreparedStep& step, const Program& program);

}  // namespace flopcast::realrun
