#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "model/job.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

/// What a run says of its step time.
struct MeasuredStep {
  double median_s = 0.0;
  int steps = 0;  ///< 0: a time that the user gave
  double p5_s = 0.0;
  double p95_s = 0.0;
};

/// Of --measured. Throws ConfigError when it is no time above zero.
MeasuredStep measured_step(const std::string& text);
/// Of a Megatron-LM log: its steps behind the warm-up with the job's global batch size. Throws ConfigError when there
/// is none, or when the log's ranks are not the job's devices.
MeasuredStep logged_step(const std::string& text, const std::string& file, const Job& job);

/// A term of the forecast and the gap to the measurement.
struct GapTerm {
  std::string name;
  double forecast_s = 0.0;
  double gap_s = 0.0;  ///< its part, were every term off by the same factor
  /// How many times its forecast the term would take if it made the whole gap; nothing when it would be less than none.
  std::optional<double> alone;
  std::string check;  ///< what to look at
};
/// Largest first. The parts sum to the gap.
std::vector<GapTerm> gap_terms(const Result& forecast, double measured_s);

Table gap_table(const Result& forecast, const MeasuredStep& measured);
/// Schema flopcast.gap/1.
nlohmann::ordered_json gap_json(const Result& forecast, const MeasuredStep& measured);

}  // namespace flopcast
