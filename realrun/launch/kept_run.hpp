#pragma once

#include <functional>
#include <vector>

#include "realrun/launch/command_line.hpp"
#include "realrun/launch/prepared_run.hpp"
#include "realrun/launch/run_file.hpp"

namespace flopcast::realrun {

/// Trains with `train` on ranks of this process while the file of the run is kept up to date. `origin` says what is
/// known before; job, failure, warm-up and load are filled in. Throws what ends the run, once the file is written.
void keep_run(const LaunchOptions& options, const PreparedRun& run, RunOrigin origin,
              const std::function<void(std::vector<RankResult>&, const BetweenSteps&)>& train);

}  // namespace flopcast::realrun
