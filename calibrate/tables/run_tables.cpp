#include "calibrate/tables/tables.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "model/config/document.hpp"
#include "sim/files/result_json.hpp"
#include "sim/files/timeline_file.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

std::string source_text(const RunComparison& run) {
  if (run.times_from == TimesFrom::kJob) return fmt::format("of the job's cluster, {}", run.job.step.job.cluster.name);
  return fmt::format("{} on these ranks just before and after, which by themselves forecast {:.6g} and {:.6g} s",
                     run.slept ? "the times to sleep, with updates and messages calibrated" : "calibrated",
                     run.calibrations->before_s, run.calibrations->after_s);
}

Json held_json(const std::vector<HeldBytes>& held) {
  Json stages = Json::array();
  for (const HeldBytes& stage : held) {
    stages.push_back({{"from_forward", stage.from_forward}, {"after_input_gradient", stage.after_input_gradient}});
  }
  return stages;
}

Json calibration_json(const CalibrationPair& calibrations) {
  return {{"before_s", calibrations.before_s},
          {"after_s", calibrations.after_s},
          {"difference_percent", 100.0 * calibrations.difference()},
          {"agrees", calibrations.agrees()}};
}

const char* times_name(TimesFrom from) {
  return from == TimesFrom::kJob ? "job" : "calibration";
}

}  // namespace

Table run_table(const RunComparison& run) {
  Table table;
  table.title = "Forecast and measurement of one step";
  table.columns = {text_column("term"),
                   text_column("unit"),
                   number_column("forecast"),
                   number_column("measured"),
                   number_column("error %", "error_percent"),
                   number_column("replay")};
  for (const RunTerm& term : run_terms(run)) {
    const std::optional<double> error = term.error_percent();
    table.rows.push_back({term.name, term.unit, fmt::format("{:.6g}", term.forecast),
                          fmt::format("{:.6g}", term.measured), error ? fmt::format("{:.2f}", *error) : std::string(),
                          fmt::format("{:.6g}", term.replay)});
  }
  if (!run.conditions.empty()) table.notes.push_back(run.conditions);
  table.notes.push_back(fmt::format("forecast: {}", source_text(run)));
  table.notes.push_back("replay: this program simulated with the medians of the run itself, transfers taking no time");
  table.notes.push_back(
      fmt::format("measured: {} repetitions after {} to warm up, {} of them disturbed; median step "
                  "shown, quartiles {:.6g} and {:.6g} s",
                  run.step_seconds.size(), run.warmup, run.disturbance.steps, percentile(run.step_seconds, 0.25),
                  percentile(run.step_seconds, 0.75)));
  if (!run.slept) {
    table.notes.push_back(run.losses.size() == 1
                              ? fmt::format("mean loss {:.4f}", run.losses.front())
                              : fmt::format("loss {:.4f} in the first, {:.4f} in the last of {} steps",
                                            run.losses.front(), run.losses.back(), run.losses.size()));
  }
  return table;
}

Json run_json(const RunComparison& run) {
  Forecast view = run.job;
  view.result = run.forecast.result;
  const Json forecast = result_json(view);
  view.result = run.measured.result;
  const Json measured = result_json(view);
  Json terms = Json::array();
  for (const RunTerm& term : run_terms(run)) {
    Json entry = {{"term", term.key},
                  {"unit", term.unit},
                  {"forecast", term.forecast},
                  {"measured", term.measured},
                  {"replay", term.replay}};
    const std::optional<double> error = term.error_percent();
    entry["error_percent"] = error ? Json(*error) : Json(nullptr);
    terms.push_back(entry);
  }
  Json json = {{"schema", "flopcast.run/1"},
               {"backend", run.backend},
               {"conditions", run.conditions},
               {"schedule", run.schedule},
               {"compute", run.slept ? "sleep" : "network"},
               {"times", times_name(run.times_from)},
               {"forecast", forecast},
               {"measured", measured},
               {"error", {{"time_percent", terms.front().at("error_percent")}, {"terms", terms}}},
               {"repetitions",
                {{"count", run.step_seconds.size()},
                 {"warmup", run.warmup},
                 {"time_s", run.step_seconds},
                 {"lower_quartile_s", percentile(run.step_seconds, 0.25)},
                 {"upper_quartile_s", percentile(run.step_seconds, 0.75)}}},
               {"losses", run.slept ? Json::array() : Json(run.losses)},
               {"disturbed",
                {{"any", run.disturbance.any},
                 {"repetitions", run.disturbance.steps},
                 {"stretch", run.disturbance.stretch},
                 {"others_cpu_share", run.disturbance.others_share}}},
               {"timelines",
                {{"forecast", timeline_json(run.forecast.drawn)}, {"measured", timeline_json(run.measured.drawn)}}}};
  if (!run.measured.held.empty()) {
    json["activation_bytes"] = {{"forecast", held_json(run.forecast.held)}, {"measured", held_json(run.measured.held)}};
  }
  if (run.calibrations) json["calibration"] = calibration_json(*run.calibrations);
  return json;
}

Series loss_curve(const std::string& schedule, const std::vector<double>& losses) {
  Series curve;
  curve.name = schedule;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    if (!std::isfinite(losses[step])) continue;
    curve.points.push_back({static_cast<double>(step + 1), losses[step], fmt::format("step {}", step + 1)});
  }
  return curve;
}

Series read_loss_curve(std::string_view text, const std::string& file) {
  try {
    const nlohmann::json run = parse_json(text, file).at("comparison");
    std::vector<double> losses;
    for (const nlohmann::json& loss : run.at("losses")) {
      losses.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
    }
    return loss_curve(run.at("schedule").get<std::string>(), losses);
  } catch (const nlohmann::json::exception&) {
    throw ConfigError({"--beside", "this is no measurement of a run", file, "a file that flopcast run -o wrote"});
  }
}

SeriesChart loss_chart(std::vector<Series> curves) {
  SeriesChart chart;
  chart.title = "Loss";
  chart.x.title = "step";
  chart.y.title = "mean cross-entropy, nats";
  chart.series = std::move(curves);
  return chart;
}

}  // namespace flopcast
