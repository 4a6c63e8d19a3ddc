#include "planner/search/objective.hpp"

namespace flopcast {

const std::vector<std::string>& objective_names() {
  static const std::vector<std::string> names = {"time", "cost", "gpus", "energy"};
  return names;
}

Score score_of(Objective objective, double time_s, int devices, double training_share) {
  const double clock_s = time_s / training_share;
  switch (objective) {
    case Objective::kTime:
      return {clock_s, clock_s};
    case Objective::kGpus:
      return {static_cast<double>(devices), clock_s};
    case Objective::kCost:
    case Objective::kEnergy:
      break;
  }
  return {clock_s * devices, clock_s};
}

}  // namespace flopcast
