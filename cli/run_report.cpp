#include "cli/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "reports/result/result_json.hpp"
#include "reports/timeline/timeline_json.hpp"
#include "sim/variation/percentile.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// A figure that all views have; of peak memory the replay says nothing of its own.
struct Term {
  std::string name;
  std::string key;
  std::string unit;
  double forecast = 0.0;
  double replay = 0.0;
  double measured = 0.0;

  std::optional<double> error_percent() const {
    if (!(measured > 0.0)) return std::nullopt;
    return 100.0 * (forecast - measured) / measured;
  }
};

template <class ValueOf>
Term term_of(const RunComparison& run, const char* name, const char* key, const char* unit, ValueOf value_of) {
  return {name, key, unit, value_of(run.forecast), value_of(run.replay), value_of(run.measured)};
}

double mean_time(const RunView& view, Ticks StageTimes::*time) {
  double sum = 0.0;
  for (const StageTimes& stage : view.times.stages) sum += static_cast<double>(stage.*time) * kSecondsPerTick;
  return sum / static_cast<double>(view.times.stages.size());
}

bool runs(const Program& program, ActionKind kind) {
  for (const std::vector<Action>& actions : program.ranks) {
    for (const Action& action : actions) {
      if (action.kind == kind) return true;
    }
  }
  return false;
}

void add_actions(const RunComparison& run, std::vector<Term>& terms) {
  const auto add = [&](ActionKind kind, const char* name, const char* key, Ticks StageTimes::*time) {
    if (!runs(run.job.step.program, kind)) return;
    terms.push_back(term_of(run, name, key, "s", [time](const RunView& view) { return mean_time(view, time); }));
  };
  add(ActionKind::kForward, "forward of a stage, median", "forward_s", &StageTimes::forward);
  const bool asynchronous = run.job.step.program.asynchronous;
  add(ActionKind::kBackward,
      asynchronous ? "backward of a stage with its update, median" : "backward of a stage, median", "backward_s",
      &StageTimes::backward);
  add(ActionKind::kInputGradient, "input gradient of a stage, median", "input_gradient_s", &StageTimes::input_gradient);
  add(ActionKind::kWeightGradient, "weight gradient of a stage, median", "weight_gradient_s",
      &StageTimes::weight_gradient);
}

double peak_activations(const Result& result) {
  double peak = 0.0;
  for (const RankMemoryResult& rank : result.memory.per_pipeline_rank) peak = std::max(peak, rank.activations_gib);
  return peak;
}

std::vector<Term> terms_of(const RunComparison& run) {
  std::vector<Term> terms;
  const auto add = [&](const char* name, const char* key, const char* unit, auto value_of) {
    terms.push_back(term_of(run, name, key, unit, [value_of](const RunView& view) { return value_of(view.result); }));
  };
  add("step time", "time_s", "s", [](const Result& result) { return result.iteration.time_s; });
  // Where nothing is flushed, updates come between the actions, and a forecast spreads them over the backward passes.
  const bool asynchronous = run.job.step.program.asynchronous;
  if (asynchronous) {
    add("compute and updates, mean of ranks", "compute_s", "s",
        [](const Result& result) { return result.breakdown.compute_s + result.breakdown.optimizer_s; });
  } else {
    add("compute, mean of ranks", "compute_s", "s", [](const Result& result) { return result.breakdown.compute_s; });
  }
  if (!asynchronous)
    add("optimizer, mean of ranks", "optimizer_s", "s",
        [](const Result& result) { return result.breakdown.optimizer_s; });
  add("exposed pipeline communication", "pp_comm_s", "s",
      [](const Result& result) { return result.breakdown.pp_comm_s; });
  add("exposed data-parallel communication", "dp_comm_s", "s",
      [](const Result& result) { return result.breakdown.dp_comm_s; });
  add("bubble", "bubble_s", "s", [](const Result& result) { return result.breakdown.bubble_s; });
  add("bubble", "bubble_fraction", "share", [](const Result& result) { return result.bubble.fraction; });
  add_actions(run, terms);
  if (!run.slept) add("peak activations, fullest rank", "peak_activations_gib", "GiB", peak_activations);
  return terms;
}

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
  for (const Term& term : terms_of(run)) {
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
  for (const Term& term : terms_of(run)) {
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

std::vector<std::string> disturbance_texts(const RunComparison& run) {
  std::vector<std::string> texts;
  const Disturbance& found = run.disturbance;
  if (found.steps > 0) {
    texts.push_back(fmt::format("the run was disturbed: in {} of {} repetitions the actions took up to {:.2f} times {}",
                                found.steps, found.stretch.size(),
                                *std::max_element(found.stretch.begin(), found.stretch.end()),
                                run.slept ? "what they should sleep" : "their CPU time"));
  }
  if (found.others_share > kBusyMachine) {
    texts.push_back(
        fmt::format("the run was disturbed: other programs used {:.0f} % of the machine", 100.0 * found.others_share));
  }
  if (run.calibrations && !run.calibrations->agrees()) {
    texts.push_back(
        fmt::format("the calibrations before and after the run disagree by {:.1f} % (tolerance {:.1f} %): the "
                    "machine changed its speed, and the forecast's errors say nothing; run again",
                    100.0 * run.calibrations->difference(), 100.0 * CalibrationPair::kTolerance));
  }
  return texts;
}

}  // namespace flopcast
