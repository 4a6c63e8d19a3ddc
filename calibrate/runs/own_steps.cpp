#include "calibrate/runs/fit_runs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text/error.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

StepsOfLog steps_of_log(const TrainingLog& log, const std::string& file, const std::string& flag, const Job& job) {
  const int devices = job.cluster.devices();
  if (log.ranks && *log.ranks != devices) {
    throw ConfigError({flag, fmt::format("the run had {} ranks, but the job has {} devices", *log.ranks, devices), file,
                       "name the cluster that the log was recorded on"});
  }
  StepsOfLog steps;
  std::set<int> batches;
  const double sample = static_cast<double>(sequences_of(job.training, 1)) * job.training.sequence_length;
  const double tokens = sample * job.layout.global_batch_size;
  for (const LoggedStep& step : log.steps) {
    int batch = step.global_batch_size;
    if (batch == 0 && step.batch_tokens > 0.0) {
      constexpr double kRounded = 0.01;  // tokens are printed with three digits
      batch = std::abs(step.batch_tokens / tokens - 1.0) < kRounded
                  ? job.layout.global_batch_size
                  : static_cast<int>(std::lround(step.batch_tokens / sample));
    }
    if (batch == 0) batch = job.layout.global_batch_size;  // the log does not contain it
    batches.insert(batch);
    const double seconds = step.seconds > 0.0 ? step.seconds : tokens / (step.tokens_per_s_per_gpu * devices);
    if (batch == job.layout.global_batch_size && !step.warm_up && step.skipped == 0) steps.seconds.push_back(seconds);
  }
  if (batches.count(job.layout.global_batch_size) == 0) {
    throw ConfigError(
        {flag, fmt::format("contains no steps with the job's global batch size of {}", job.layout.global_batch_size),
         file, fmt::format("the log has --gbs {}", fmt::join(batches, ", "))});
  }
  if (steps.seconds.empty())
    throw ConfigError({flag, "contains no steps after the warm-up", file, "log more iterations"});
  constexpr double kLow = 0.05;
  constexpr double kMiddle = 0.5;
  constexpr double kHigh = 0.95;
  steps.median_s = percentile(steps.seconds, kMiddle);
  steps.p5_s = percentile(steps.seconds, kLow);
  steps.p95_s = percentile(steps.seconds, kHigh);
  return steps;
}

std::optional<Drift> drift_of(std::vector<DatedError> errors) {
  constexpr std::size_t kFewest = 3;
  constexpr double kLeastSpread = 0.003;
  constexpr double kLeastShift = 0.015;
  constexpr double kLeastT = 4.0;
  std::stable_sort(errors.begin(), errors.end(),
                   [](const DatedError& a, const DatedError& b) { return a.date < b.date; });
  std::optional<Drift> found;
  double best = kLeastT;
  for (std::size_t split = kFewest; split + kFewest <= errors.size(); ++split) {
    if (errors[split].date == errors[split - 1].date) continue;
    const auto count_before = static_cast<double>(split);
    const auto count_since = static_cast<double>(errors.size() - split);
    double before = 0.0;
    double since = 0.0;
    for (std::size_t index = 0; index < errors.size(); ++index) {
      (index < split ? before : since) += errors[index].error / (index < split ? count_before : count_since);
    }
    double squares = 0.0;
    for (std::size_t index = 0; index < errors.size(); ++index) {
      const double off = errors[index].error - (index < split ? before : since);
      squares += off * off;
    }
    const double spread = std::max(kLeastSpread, std::sqrt(squares / (count_before + count_since - 2.0)));
    const double t = std::abs(since - before) / (spread * std::sqrt(1.0 / count_before + 1.0 / count_since));
    if (t <= best || std::abs(since - before) < kLeastShift) continue;
    best = t;
    found = {errors[split].date, static_cast<int>(split), static_cast<int>(errors.size() - split), before, since};
  }
  return found;
}

std::string drift_text(const Drift& drift) {
  const auto said = [](double error) {
    return fmt::format("{:.1f} % {}", 1e2 * std::abs(error), error < 0.0 ? "low" : "high");
  };
  return fmt::format("since {} forecasts are {}; before {} ({} and {} runs)", drift.since, said(drift.error_since),
                     said(drift.error_before), drift.runs_since, drift.runs_before);
}

std::vector<nlohmann::json> user_rows(const nlohmann::json& json, const std::string& file) {
  const char* form = R"(expected rows {"id": …, "job": {…}, "measured": {"iteration_s": …}})";
  const bool wrapped = json.is_object() && json.contains("rows");
  const nlohmann::json& rows = wrapped ? json.at("rows") : json;
  std::vector<nlohmann::json> all;
  if (rows.is_object()) {
    all.push_back(rows);
  } else if (rows.is_array()) {
    all.assign(rows.begin(), rows.end());
  } else {
    throw ConfigError({"", "contains no rows", file, form});
  }
  if (all.empty()) throw ConfigError({"rows", "is an empty list", file, form});
  for (std::size_t index = 0; index < all.size(); ++index) {
    const std::string place = fmt::format("{}:{}/{}", file, wrapped ? "/rows" : "", index);
    if (!all[index].is_object()) throw ConfigError({"", "a row is not an object", place, form});
    for (const char* key : {"job", "measured"}) {
      if (!all[index].contains(key)) throw ConfigError({key, "is missing", place, form});
    }
    if (!all[index].contains("id")) all[index]["id"] = fmt::format("{}", index + 1);
  }
  return all;
}

}  // namespace flopcast
