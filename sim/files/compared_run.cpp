#include "sim/files/compared_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "sim/files/result_file.hpp"
#include "sim/files/run_file.hpp"
#include "sim/program/program.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKeptAs = "comparison";  // key in the measurement of a run

template <class ValueOf>
RunTerm run_term(const RunComparison& run, const char* name, const char* key, const char* unit, ValueOf value_of) {
  return {name, key, unit, value_of(run.forecast), value_of(run.replay), value_of(run.measured)};
}

double mean_stage_time(const RunView& view, Ticks StageTimes::*time) {
  double sum = 0.0;
  for (const StageTimes& stage : view.times.stages) sum += static_cast<double>(stage.*time) * kSecondsPerTick;
  return sum / static_cast<double>(view.times.stages.size());
}

bool executes(const Program& program, ActionKind kind) {
  for (const std::vector<Action>& actions : program.ranks) {
    for (const Action& action : actions) {
      if (action.kind == kind) return true;
    }
  }
  return false;
}

void add_action_terms(const RunComparison& run, std::vector<RunTerm>& terms) {
  const auto add = [&](ActionKind kind, const char* name, const char* key, Ticks StageTimes::*time) {
    if (!executes(run.job.step.program, kind)) return;
    terms.push_back(run_term(run, name, key, "s", [time](const RunView& view) { return mean_stage_time(view, time); }));
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

}  // namespace

std::optional<double> RunTerm::error_percent() const {
  if (!(measured > 0.0)) return std::nullopt;
  return 100.0 * (forecast - measured) / measured;
}

std::vector<RunTerm> run_terms(const RunComparison& run) {
  std::vector<RunTerm> terms;
  const auto add = [&](const char* name, const char* key, const char* unit, auto value_of) {
    terms.push_back(run_term(run, name, key, unit, [value_of](const RunView& view) { return value_of(view.result); }));
  };
  add("step time", "time_s", "s", [](const Result& result) { return result.iteration.time_s; });
  // Without a flush, updates come between the actions, and a forecast spreads them over the backward passes.
  const bool asynchronous = run.job.step.program.asynchronous;
  add(asynchronous ? "compute and updates, mean of ranks" : "compute, mean of ranks", "compute_s", "s",
      [asynchronous](const Result& result) {
        return result.breakdown.compute_s + (asynchronous ? result.breakdown.optimizer_s : 0.0);
      });
  if (!asynchronous) {
    add("optimizer, mean of ranks", "optimizer_s", "s",
        [](const Result& result) { return result.breakdown.optimizer_s; });
  }
  add("exposed pipeline communication", "pp_comm_s", "s",
      [](const Result& result) { return result.breakdown.pp_comm_s; });
  add("exposed data-parallel communication", "dp_comm_s", "s",
      [](const Result& result) { return result.breakdown.dp_comm_s; });
  add("bubble", "bubble_s", "s", [](const Result& result) { return result.breakdown.bubble_s; });
  add("bubble", "bubble_fraction", "share", [](const Result& result) { return result.bubble.fraction; });
  add_action_terms(run, terms);
  if (!run.slept) add("peak activations, fullest rank", "peak_activations_gib", "GiB", peak_activations);
  return terms;
}

namespace {

constexpr std::pair<const char*, double HeldBytes::*> kHeldBytes[] = {
    {"from_forward", &HeldBytes::from_forward}, {"after_input_gradient", &HeldBytes::after_input_gradient}};
Json held_json(const std::vector<HeldBytes>& held) {
  Json stages = Json::array();
  for (const HeldBytes& stage : held) {
    Json entry;
    for (const auto& [key, bytes] : kHeldBytes) entry[key] = stage.*bytes;
    stages.push_back(std::move(entry));
  }
  return stages;
}
std::vector<HeldBytes> read_held(const Json& stages, const std::string& field, const std::string& file) {
  std::vector<HeldBytes> held;
  const auto fail = [&](const std::string& problem) {
    throw ConfigError({field, problem, file, "expected the output of `flopcast run --format json`"});
  };
  if (!stages.is_array()) fail("is not a list");
  for (const Json& stage : stages) {
    held.emplace_back();
    for (const auto& [key, bytes] : kHeldBytes) {
      if (!stage.is_object() || !stage.contains(key) || !stage.at(key).is_number()) {
        fail(fmt::format("a stage has no {}", key));
      }
      held.back().*bytes = stage.at(key).get<double>();
    }
  }
  return held;
}
void check_stages(const Timeline& timeline, const std::vector<HeldBytes>& held, const std::string& field,
                  const std::string& file) {
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (!is_action(span.kind) || span.action.stage < held.size()) continue;
      throw ConfigError(
          {field, fmt::format("has no entry for stage {}", span.action.stage), file, "give an entry for every stage"});
    }
  }
}

Json calibrations_json(const CalibrationPair& calibrations) {
  return {{"before_s", calibrations.before_s},
          {"after_s", calibrations.after_s},
          {"difference_percent", 100.0 * calibrations.difference()},
          {"agrees", calibrations.agrees()}};
}

const char* times_name(TimesFrom from) {
  return from == TimesFrom::kJob ? "job" : "calibration";
}

constexpr const char* kTold[] = {"backend", "times", "warnings", "error", "repetitions"};

// Facts about the run itself, and whether it was on GPUs.
OrderedJsonValue told_by(const Json& run) {
  Json told = Json::object();
  for (const char* key : kTold) {
    if (run.contains(key)) told[key] = run.at(key);
  }
  const Json backend = run.value("backend", Json());
  if (backend.is_string()) told["on_gpus"] = computes_on_gpus(backend.get<std::string>());
  return told;
}

Json run_json(const RunComparison& run) {
  Json terms = Json::array();
  for (const RunTerm& term : run_terms(run)) {
    Json entry = {{"term", term.key},          {"name", term.name},         {"unit", term.unit},
                  {"forecast", term.forecast}, {"measured", term.measured}, {"replay", term.replay}};
    const std::optional<double> error = term.error_percent();
    entry["error_percent"] = error ? Json(*error) : Json(nullptr);
    terms.push_back(entry);
  }
  Json json = {{"schema", kRunName},
               {"backend", run.backend},
               {"conditions", run.conditions},
               {"schedule", run.schedule},
               {"compute", run.slept ? "sleep" : "network"},
               {"times", times_name(run.times_from)},
               {"warnings", disturbance_texts(run)},
               {"disturbed",
                {{"any", run.disturbance.any},
                 {"repetitions", run.disturbance.steps},
                 {"stretch", run.disturbance.stretch},
                 {"others_cpu_share", run.disturbance.others_share}}},
               {"forecast", side_json(run, run.forecast)},
               {"measured", side_json(run, run.measured)},
               {"error", {{"time_percent", terms.front().at("error_percent")}, {"terms", terms}}},
               {"repetitions",
                {{"count", run.step_seconds.size()},
                 {"warmup", run.warmup},
                 {"time_s", run.step_seconds},
                 {"lower_quartile_s", percentile(run.step_seconds, 0.25)},
                 {"upper_quartile_s", percentile(run.step_seconds, 0.75)}}},
               {"losses", run.slept ? Json::array() : Json(run.losses)},
               {"timelines",
                {{"forecast", timeline_json(run.forecast.drawn)}, {"measured", timeline_json(run.measured.drawn)}}}};
  if (!run.measured.held.empty()) {
    json["activation_bytes"] = {{"forecast", held_json(run.forecast.held)}, {"measured", held_json(run.measured.held)}};
  }
  if (run.calibrations) json["calibration"] = calibrations_json(*run.calibrations);
  return json;
}

SavedRun::Side read_side(const Json& run, const std::string& side, const std::string& file) {
  const auto result = run.find(side);
  if (result == run.end() || !has_schema(*result, kResultName)) {
    throw ConfigError(
        {side, "is not a flopcast.result/1", file, "expected the output of `flopcast run --format json`"});
  }
  SavedRun::Side read;
  const Json timelines = run.value("timelines", Json::object());
  if (!timelines.contains(side)) return read;
  read.timeline = read_saved_timeline(timelines.at(side), file, "timelines." + side);
  if (!run.contains("activation_bytes")) return read;
  const Json& held = run.at("activation_bytes");
  const std::string field = "activation_bytes." + side;
  read.held = read_held(held.is_object() ? held.value(side, Json()) : Json(), field, file);
  check_stages(read.timeline->timeline, read.held, field, file);
  return read;
}

}  // namespace

std::vector<std::string> disturbance_texts(const RunComparison& run) {
  std::vector<std::string> texts;
  const Disturbance& found = run.disturbance;
  if (found.steps > 0) {
    texts.push_back(fmt::format("the run was disturbed: in {} of {} repetitions the actions took up to {:.2f} times {}",
                                found.steps, found.stretch.size(),
                                *std::max_element(found.stretch.begin(), found.stretch.end()),
                                run.slept ? "their intended sleep" : "their CPU time"));
  }
  if (found.others_share > kBusyMachine) {
    texts.push_back(
        fmt::format("the run was disturbed: other programs used {:.0f} % of the machine", 100.0 * found.others_share));
  }
  if (run.calibrations && !run.calibrations->agrees()) {
    texts.push_back(
        fmt::format("the calibrations before and after the run differ by {:.1f} % (tolerance {:.1f} %): the "
                    "machine's speed changed, so the forecast's errors are meaningless; run again",
                    100.0 * run.calibrations->difference(), 100.0 * CalibrationPair::kTolerance));
  }
  return texts;
}

Json side_json(const RunComparison& run, const RunView& side) {
  Forecast view = run.job;
  view.result = side.result;
  return result_json(view);
}

std::string write_run(const RunComparison& run) {
  return dumped(run_json(run), 2);
}

SavedRun read_run(const Json& json, const std::string& file) {
  const auto text_of = [&json](const char* key) {
    return json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : std::string();
  };
  if (json.contains("timelines") && !json.at("timelines").is_object()) {
    throw ConfigError({"timelines", "is not an object", file, "give an object with forecast and measured"});
  }
  SavedRun run;
  run.backend = text_of("backend");
  run.conditions = text_of("conditions");
  run.slept = text_of("compute") == "sleep";
  run.has_held_bytes = json.contains("activation_bytes");
  run.forecast = read_side(json, "forecast", file);
  run.measured = read_side(json, "measured", file);
  run.told = told_by(json);
  return run;
}

SavedRun saved_run(const RunComparison& run) {
  const auto side_of = [](const RunView& view) { return SavedRun::Side{SavedTimeline{view.drawn}, view.held}; };
  return {run.backend,           run.conditions,        run.slept, !run.measured.held.empty(), side_of(run.forecast),
          side_of(run.measured), told_by(run_json(run))};
}

std::string with_comparison(const std::string& measurement, const RunComparison& run) {
  Json file = Json::parse(measurement);
  file[kKeptAs] = run_json(run);
  return dumped(file) + "\n";
}

const Json& run_kept_in(const Json& measurement, const std::string& file) {
  if (!measurement.contains(kKeptAs)) {
    throw ConfigError(
        {kKeptAs, "is missing", file,
         "a report needs the file of a `flopcast run -o` that ended successfully; other measurements have nothing to "
         "show"});
  }
  const Json& comparison = measurement.at(kKeptAs);
  if (!has_schema(comparison, kRunName)) {
    throw ConfigError({kKeptAs, "is not a flopcast.run/1", file, "expected the output of `flopcast run -o`"});
  }
  return comparison;
}

RunLosses read_run_losses(std::string_view text, const std::string& file) {
  try {
    const nlohmann::json run = parse_json(text, file).at(kKeptAs);
    RunLosses read = {run.at("schedule").get<std::string>(), {}};
    for (const nlohmann::json& loss : run.at("losses")) {
      read.losses.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
    }
    return read;
  } catch (const nlohmann::json::exception&) {
    throw ConfigError(
        {"--beside", "this is not a measurement of a run", file, "give a file written by flopcast run -o"});
  }
}

}  // namespace flopcast
