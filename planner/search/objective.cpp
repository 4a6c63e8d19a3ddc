#include "planner/search/objective.hpp"

namespace flopcast {

const std::vector<std::string>& objective_names() {
  static const std::vector<std::string> names = {"time", "cost", "gpus", "energy"};
  return names;
}

Score score_of(Objective objective, double time_s, int devices) {
  switch (objective) {
    case Objective::kTime:
      return {time_s, time_s};
    case Objective::kGpus:
      return {static_cast<double>(devices), time_s};
    case Objective::kCost:
    case Objective::kEnergy:
      break;
  }
  return {time_s * devices, time_s};
}

}  // namespace flopcast
