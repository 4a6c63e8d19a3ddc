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

/// A measurement file (schema flopcast.measurement/1): host, date, libraries; `samples` with the seconds of every
/// forward, backward, … of every stage, each over all steps and microbatches; and under `run` what happened: losses,
/// wall and CPU seconds, bytes sent, and for each finished step the timeline of the first replica, in picoseconds;
/// beside them the same of the calibration's steps, with the seconds of its messages.
nlohmann::ordered_json run_file(const TrainingPlan& plan, const std::vector<RankResult>& ranks,
                                const RunOrigin& origin);

}  // namespace flopcast::realrun
