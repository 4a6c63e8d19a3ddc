#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "realrun/launch/host_load.hpp"
#include "realrun/training/train.hpp"

namespace flopcast::realrun {

/// How a run came about, for its file.
struct RunOrigin {
  std::string backend;       ///< "threads"
  nlohmann::json job = {};   ///< as given
  std::string failure = {};  ///< why it ended early; empty when it did not
  int warmup = 1;            ///< first steps that no figure counts
  HostLoad load = {};        ///< of calibration and training together
  std::string device = "cpu";
  std::string dtype = "fp32";                         ///< of the products
  std::map<std::string, std::string> libraries = {};  ///< version by name, beside the host's
  std::string conditions = {};  ///< under which figures mean something else than they seem to: several ranks on one GPU
};

/// What the ranks have done so far, as sim/files/run_file.hpp writes it, with the timelines of the first replica.
nlohmann::ordered_json run_file(const TrainingPlan& plan, const std::vector<RankResult>& ranks,
                                const RunOrigin& origin);

}  // namespace flopcast::realrun
