#include "cli/measured_run.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "model/config/document.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

template <class Kind>
Kind kind_named(const std::string& name, Kind last) {
  for (int index = 0; index <= static_cast<int>(last); ++index) {
    if (name_of(static_cast<Kind>(index)) == name) return static_cast<Kind>(index);
  }
  throw ConfigError({"kind", "unknown kind \"" + name + "\"", {}, {}});
}

Action action_named(const std::string& text) {
  const std::optional<Action> action = parse_action(text);
  if (!action) throw ConfigError({"action", "\"" + text + "\" is no action", {}, {}});
  return *action;
}

Timeline read_timeline(const nlohmann::json& json) {
  Timeline timeline;
  timeline.title = "measured";
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  for (const nlohmann::json& spans : json.at("ranks")) {
    timeline.ranks.emplace_back();
    for (const nlohmann::json& entry : spans) {
      Span span;
      span.kind = kind_named(entry.at("kind").get<std::string>(), SpanKind::kParameterGather);
      span.stream = kind_named(entry.at("stream").get<std::string>(), StreamKind::kPipeline);
      if (is_action(span.kind)) span.action = action_named(entry.at("action").get<std::string>());
      span.start = entry.at("start_ps").get<Ticks>();
      span.end = entry.at("end_ps").get<Ticks>();
      timeline.ranks.back().push_back(span);
    }
  }
  for (const nlohmann::json& entry : json.at("transfers")) {
    timeline.transfers.push_back({.start = entry.at("start_ps").get<Ticks>(),
                                  .end = entry.at("end_ps").get<Ticks>(),
                                  .produced_by = action_named(entry.at("produced_by").get<std::string>()),
                                  .to_stage = entry.at("to_stage").get<std::uint16_t>(),
                                  .from_rank = entry.at("from_rank").get<std::uint32_t>(),
                                  .to_rank = entry.at("to_rank").get<std::uint32_t>()});
  }
  return timeline;
}

Ticks median(std::vector<Ticks> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::size_t first_counted(const MeasuredRun& run) {
  return run.steps.size() > 1 ? 1 : 0;
}

Ticks& time_of(StageTimes& times, SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return times.forward;
    case SpanKind::kInputGradient:
      return times.input_gradient;
    case SpanKind::kWeightGradient:
      return times.weight_gradient;
    default:
      return times.backward;
  }
}

// What a rank did after its last action, by kind; of the reductions only what was left of them.
std::map<SpanKind, Ticks> flush_of(const std::vector<Span>& spans) {
  Ticks last_action = 0;
  for (const Span& span : spans) last_action = std::max(last_action, is_action(span.kind) ? span.end : 0);
  std::map<SpanKind, Ticks> flush;
  Ticks reduced = last_action;
  for (const Span& span : spans) {
    if (is_action(span.kind)) continue;
    if (span.kind == SpanKind::kGradientReduction) {
      reduced = std::max(reduced, span.end);
    } else {
      flush[span.kind] += span.end - span.start;
    }
  }
  flush[SpanKind::kGradientReduction] = reduced - last_action;
  return flush;
}

}  // namespace

MeasuredRun read_measured_run(std::string_view text, const std::string& file) {
  MeasuredRun run;
  try {
    const nlohmann::json root = parse_json(text, file);
    const nlohmann::json& json = root.at("run");
    run.failure = json.at("failure").get<std::string>();
    const std::size_t replica = json.at("dp").get<std::size_t>() * json.at("tp").get<std::size_t>();
    run.has_tensor_ranks = json.at("tp").get<int>() > 1;
    for (const nlohmann::json& step : json.at("steps")) {
      run.steps.push_back(read_timeline(step.at("timeline")));
      run.losses.push_back(step.at("loss").get<double>());
      double cpu = 0;
      for (std::size_t rank = 0; rank < run.steps.back().ranks.size(); ++rank) {
        cpu += step.at("cpu_s").at(rank * replica).get<double>();
      }
      run.cpu_s.push_back(cpu);
    }
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError({"", "this is no measurement of a run", file, error.what()});
  }
  return run;
}

std::size_t typical_step(const MeasuredRun& run) {
  std::vector<std::size_t> steps(run.steps.size() - first_counted(run));
  std::iota(steps.begin(), steps.end(), first_counted(run));
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end(),
                   [&](std::size_t a, std::size_t b) { return run.steps[a].makespan() < run.steps[b].makespan(); });
  return *middle;
}

Program executed_program(const Timeline& timeline, const std::vector<Chain>& chains) {
  Program program;
  program.schedule = "as executed";
  program.chains = chains;
  program.rank_of_stage.resize(static_cast<std::size_t>(chains.back().last_stage) + 1);
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    program.ranks.emplace_back();
    for (const Span& span : timeline.ranks[rank]) {
      if (!is_action(span.kind)) continue;
      program.ranks.back().push_back(span.action);
      program.rank_of_stage.at(span.action.stage) = static_cast<int>(rank);
    }
  }
  return program;
}

StepTimes median_times(const MeasuredRun& run, const Program& program) {
  std::map<std::pair<int, SpanKind>, std::vector<Ticks>> actions;          // by stage
  std::map<std::pair<std::size_t, SpanKind>, std::vector<Ticks>> flushes;  // by rank
  for (std::size_t step = first_counted(run); step < run.steps.size(); ++step) {
    for (std::size_t rank = 0; rank < run.steps[step].ranks.size(); ++rank) {
      const std::vector<Span>& spans = run.steps[step].ranks[rank];
      for (const Span& span : spans) {
        if (is_action(span.kind)) actions[{span.action.stage, span.kind}].push_back(span.end - span.start);
      }
      for (const auto& [kind, time] : flush_of(spans)) flushes[{rank, kind}].push_back(time);
    }
  }
  StepTimes times;
  times.stages.resize(program.rank_of_stage.size());
  times.boundaries.resize(times.stages.size() - 1);
  for (const auto& [key, values] : actions) {
    time_of(times.stages.at(static_cast<std::size_t>(key.first)), key.second) = median(values);
  }
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    FlushTimes flush;
    flush.gradient_reduction = median(flushes[{rank, SpanKind::kGradientReduction}]);
    flush.optimizer = median(flushes[{rank, SpanKind::kOptimizer}]);
    flush.parameter_gather = median(flushes[{rank, SpanKind::kParameterGather}]);
    times.flush.push_back(flush);
  }
  return times;
}

}  // namespace flopcast
