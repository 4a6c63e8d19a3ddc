#include "calibrate/verdict/verdict.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "model/units/quantity.hpp"

namespace flopcast {

RunComparison judge_run(const Job& asked, Forecast answer, const MeasuredRun& run, TimesFrom times_from,
                        const ReadFile& read_file) {
  const Forecast trained = forecast(job_as_run(asked, computes_on_gpus(run.backend)), read_file);
  Result as_run = trained.result;
  as_run.memory = memory_as_run(trained);
  RunComparison comparison = compare_run(std::move(answer), as_run, run, times_from);
  if (comparison.slept) return comparison;
  comparison.measured.held = held_as_run(trained.step);
  comparison.forecast.held =
      times_from == TimesFrom::kJob ? held_as_priced(comparison.job.step) : comparison.measured.held;
  return comparison;
}

}  // namespace flopcast
