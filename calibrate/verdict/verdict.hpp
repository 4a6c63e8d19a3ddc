#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/verdict/run_comparison.hpp"

namespace flopcast {

/// The verdict on a run: `answer`, the forecast of `asked`, beside what was measured, with the activations that the
/// run and the forecast hold where the ranks computed.
RunComparison judge_run(const Job& asked, Forecast answer, const MeasuredRun& run, TimesFrom times_from,
                        const ReadFile& read_file);

/// A figure that forecast, measurement and replay have; of peak memory the replay says nothing of its own.
struct RunTerm {
  std::string name;
  std::string key;
  std::string unit;
  double forecast = 0.0;
  double replay = 0.0;
  double measured = 0.0;

  /// Of the forecast; nothing where nothing was measured.
  std::optional<double> error_percent() const;
};
/// The step's time first.
std::vector<RunTerm> run_terms(const RunComparison& run);

/// What disturbed the run, or makes its forecast worthless, a sentence each.
std::vector<std::string> disturbance_texts(const RunComparison& run);

}  // namespace flopcast
