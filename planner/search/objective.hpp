#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/job.hpp"

namespace flopcast {

/// What the best layout is best at.
enum class Objective { kTime, kCost, kGpus, kEnergy };
const std::vector<std::string>& objective_names();  ///< "time", "cost", "gpus", "energy"

/// What layouts are ordered by: the objective, then the time on the clock for one step: its time / the share of the
/// clock that trains, which falls as GPUs are added (Goodput). Cost and energy of a step are taken as proportional to
/// device time on the clock (price and power of a device are those of the job; its power is the datasheet's, busy or
/// waiting: device_watts), so on one cluster they order as time does.
struct Score {
  double primary = 0.0;
  double time_s = 0.0;

  bool better_than(const Score& other) const {
    return primary != other.primary ? primary < other.primary : time_s < other.time_s;
  }
};
Score score_of(Objective objective, double time_s, int devices, double training_share = 1.0);

}  // namespace flopcast
