#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "realrun/launch/command_line.hpp"
#include "realrun/launch/prepared_run.hpp"
#include "realrun/launch/run_file.hpp"

namespace flopcast::realrun {

/// The file of a run that goes on. It is kept up to date, so that a run that is killed leaves what it has measured; a
/// file from an earlier run is replaced when the run begins.
class ResultFile {
 public:
  /// The whole text as of now; `failure` is empty when the run has ended well.
  using Contents = std::function<std::string(const std::string& failure)>;

  /// An empty path is standard output.
  ResultFile(std::string path, Contents contents);
  /// Writes what there is so far, in a file that can be replaced. From the second step on at most once a second and for
  /// at most a twentieth of the time.
  void keep();
  void finish(const std::string& failure);

 private:
  using Clock = std::chrono::steady_clock;

  bool replaceable() const;

  std::string path_;
  Contents contents_;
  int kept_ = 0;
  Clock::time_point next_{};
};

/// Trains with `train` on ranks of this process while the file of the run is kept up to date. `origin` says what is
/// known before; job, failure, warm-up and load are filled in. Throws what ends the run, once the file is written.
void keep_run(const LaunchOptions& options, const PreparedRun& run, RunOrigin origin,
              const std::function<void(std::vector<RankResult>&, const BetweenSteps&)>& train);

}  // namespace flopcast::realrun
