#include "cli/forecast/compare_gap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text/error.hpp"
#include "calibrate/device/training_log.hpp"
#include "model/units/parse.hpp"
#include "planner/compare/terms.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

// Steps this uneven are a finding of their own.
constexpr double kWideSpread = 0.05;

std::vector<std::string> notes_of(double gap, const MeasuredStep& measured) {
  std::vector<std::string> notes;
  if (measured.steps > 0) {
    notes.push_back(fmt::format("{} logged steps, 5th to 95th percentile {:.4g} to {:.4g} s", measured.steps,
                                measured.p5_s, measured.p95_s));
    if (measured.p95_s - measured.p5_s > kWideSpread * measured.median_s) {
      notes.emplace_back(
          "steps differ: look at data loading, checkpoints and slow devices first (simulate --straggler)");
    }
  }
  notes.emplace_back(
      "of the gap: as if every term were off by the same factor; alone: how many times its forecast a term would take "
      "if it made the whole gap");
  if (gap < 0.0)
    notes.emplace_back("faster than forecast: check that both do the same work (sequence length, recompute)");
  notes.emplace_back("flopcast run, or a trace read by calibrate, measures the terms one by one");
  return notes;
}

}  // namespace

MeasuredStep measured_step(const std::string& text) {
  const ParsedQuantity parsed = parse_quantity(text, Dimension::kTime);
  if (parsed.value && *parsed.value > 0.0) return {*parsed.value, 0, *parsed.value, *parsed.value};
  throw ConfigError({"--measured", fmt::format("\"{}\" {}", text, parsed.value ? "is no step time" : parsed.problem),
                     "", "such as 14.2s"});
}

MeasuredStep logged_step(const std::string& text, const std::string& file, const Job& job) {
  const TrainingLog log = read_training_log(text, file);
  const int devices = job.cluster.devices();
  if (log.ranks && *log.ranks != devices) {
    throw ConfigError({"--log", fmt::format("the run had {} ranks, the job has {} devices", *log.ranks, devices), file,
                       "give the cluster that the log is of"});
  }
  std::vector<double> seconds;
  std::set<int> batches;
  for (const LoggedStep& step : log.steps) {
    batches.insert(step.global_batch_size);
    const bool alike = step.global_batch_size == job.layout.global_batch_size;
    if (alike && !step.warm_up && step.skipped == 0) seconds.push_back(step.seconds);
  }
  if (batches.count(job.layout.global_batch_size) == 0) {
    throw ConfigError(
        {"--log", fmt::format("holds no step with the job's global batch size of {}", job.layout.global_batch_size),
         file, fmt::format("the log has --gbs {}", fmt::join(batches, ", "))});
  }
  if (seconds.empty()) throw ConfigError({"--log", "holds no step behind the warm-up", file, "log more iterations"});
  constexpr double kLow = 0.05;
  constexpr double kMiddle = 0.5;
  constexpr double kHigh = 0.95;
  return {percentile(seconds, kMiddle), static_cast<int>(seconds.size()), percentile(seconds, kLow),
          percentile(seconds, kHigh)};
}

std::vector<GapTerm> gap_terms(const Result& forecast, double measured_s) {
  const double time_s = forecast.iteration.time_s;
  const double gap = measured_s - time_s;
  std::vector<GapTerm> terms;
  for (const ComparedTerm& term : compare_terms(forecast, forecast)) {
    if (term.a_s <= 0.0) continue;
    GapTerm part = {term.name, term.a_s, gap * term.a_s / time_s, std::nullopt, step_term(term.id).check};
    if (term.a_s + gap >= 0.0) part.alone = (term.a_s + gap) / term.a_s;
    terms.push_back(std::move(part));
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const GapTerm& one, const GapTerm& other) { return one.forecast_s > other.forecast_s; });
  return terms;
}

Table gap_table(const Result& forecast, const MeasuredStep& measured) {
  const double time_s = forecast.iteration.time_s;
  const double gap = measured.median_s - time_s;
  Table table;
  table.title =
      fmt::format("forecast {:.4g} s, measured {:.4g} s, {:+.1f} %", time_s, measured.median_s, 100.0 * gap / time_s);
  table.columns = {text_column("term"),
                   number_column("forecast s", "forecast_s"),
                   number_column("share %", "share_percent"),
                   number_column("of the gap s", "gap_s"),
                   {"alone", Align::kRight, "alone", false},
                   text_column("what to check", "check")};
  for (const GapTerm& term : gap_terms(forecast, measured.median_s)) {
    constexpr double kMostTimes = 100.0;
    std::string alone = "cannot";
    if (term.alone) alone = *term.alone > kMostTimes ? "> 100 x" : fmt::format("{:.2f} x", *term.alone);
    table.rows.push_back({term.name, fmt::format("{:.4g}", term.forecast_s),
                          fmt::format("{:.1f}", 100.0 * term.forecast_s / time_s), fmt::format("{:.4g}", term.gap_s),
                          std::move(alone), term.check});
  }
  table.notes = notes_of(gap, measured);
  return table;
}

nlohmann::ordered_json gap_json(const Result& forecast, const MeasuredStep& measured) {
  nlohmann::ordered_json terms = nlohmann::ordered_json::array();
  for (const GapTerm& term : gap_terms(forecast, measured.median_s)) {
    nlohmann::ordered_json entry = {{"name", term.name}, {"forecast_s", term.forecast_s}, {"gap_s", term.gap_s}};
    if (term.alone) entry["alone"] = *term.alone;
    entry["check"] = term.check;
    terms.push_back(std::move(entry));
  }
  nlohmann::ordered_json json = {{"schema", "flopcast.gap/1"},
                                 {"forecast_s", forecast.iteration.time_s},
                                 {"measured_s", measured.median_s},
                                 {"gap_s", measured.median_s - forecast.iteration.time_s}};
  if (measured.steps > 0) {
    json["logged"] = {{"steps", measured.steps}, {"p5_s", measured.p5_s}, {"p95_s", measured.p95_s}};
  }
  json["terms"] = std::move(terms);
  return json;
}

}  // namespace flopcast
