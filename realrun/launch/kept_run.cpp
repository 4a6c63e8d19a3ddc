#include "realrun/launch/kept_run.hpp"

#include <utility>

#include "model/error/error.hpp"
#include "realrun/launch/result_file.hpp"

namespace flopcast::realrun {

void keep_run(const LaunchOptions& options, const PreparedRun& run, RunOrigin origin,
              const std::function<void(std::vector<RankResult>&, const BetweenSteps&)>& train) {
  std::vector<RankResult> results(static_cast<std::size_t>(run.plan.ranks()));
  const HostLoadMeter meter;
  origin.job = run.job;
  origin.warmup = options.warmup;
  ResultFile file(options.output, [&](const std::string& failure) {
    origin.failure = failure;
    origin.load = meter.load();
    return run_file(run.plan, results, origin).dump() + "\n";
  });
  file.keep();
  std::string failure;
  try {
    train(results, [&](Transport& transport) {
      if (transport.rank() == 0) file.keep();
    });
  } catch (const EnvironmentError& error) {
    failure = error.what();
  }
  file.finish(failure);
  if (!failure.empty()) throw EnvironmentError(failure);
}

}  // namespace flopcast::realrun
