#include "planner/search/evaluate.hpp"

#include <string>
#include <vector>

#include "model/error/error.hpp"
#include "sim/forecast/step_profile.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

std::string no_files(const std::string& path) {
  throw InternalError("a planned layout asked for the file " + path);
}

}  // namespace

EvaluatedLayout evaluate_layout(const Job& job) {
  const PreparedStep step = prepare(job, no_files);
  std::vector<int> versions(static_cast<std::size_t>(step.program.rank_count()), 1);
  for (std::size_t rank = 0; step.program.asynchronous && rank < versions.size(); ++rank) {
    versions[rank] = step.schedule->weights.versions(step.request, static_cast<int>(rank));
  }
  EvaluatedLayout evaluated;
  evaluated.memory = program_memory(step.job, step.stages, step.costs, step.program, versions);
  evaluated.fits = evaluated.memory.share <= 1.0;
  if (!evaluated.fits) return evaluated;
  if (step.program.asynchronous) {
    evaluated.time_s = profile_of_steady_step(step).step.time_s;
    return evaluated;
  }
  LoweredStep lowered;
  EngineResult result;
  lower(step.program, step.times, lowered);
  run(lowered.graph, result);
  FLOPCAST_CHECK(!result.deadlocked());
  evaluated.time_s = static_cast<double>(result.makespan) * kSecondsPerTick;
  return evaluated;
}

}  // namespace flopcast
