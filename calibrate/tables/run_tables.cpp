#include "calibrate/tables/tables.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "calibrate/verdict/verdict.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

std::string source_text(const RunComparison& run) {
  if (run.times_from == TimesFrom::kJob) return fmt::format("of the job's cluster, {}", run.job.step.job.cluster.name);
  return fmt::format("{} on these ranks just before and after, which by themselves forecast {:.6g} and {:.6g} s",
                     run.slept ? "the times to sleep, with updates and messages calibrated" : "calibrated",
                     run.calibrations->before_s, run.calibrations->after_s);
}

}  // namespace

Table run_table(const RunComparison& run) {
  Table table = {.title = "Forecast and measurement of one step",
                 .columns = {text_column("term"), text_column("unit"), number_column("forecast"),
                             number_column("measured"), number_column("error %"), number_column("replay")}};
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
  const RunLosses run = read_run_losses(text, file);
  return loss_curve(run.schedule, run.losses);
}

SeriesChart loss_chart(std::vector<Series> curves) {
  SeriesChart chart;
  chart.title = "Loss";
  chart.x.title = "step";
  chart.y.title = "mean cross-entropy, nats";
  chart.series = std::move(curves);
  return chart;
}

std::vector<Table> own_fit_tables(const OwnFit& fit) {
  const auto figure = [](double value) { return fmt::format("{:.4g}", value); };
  Table constants;
  constants.title = fmt::format("what {} run{} tell{}", fit.runs.size(), fit.runs.size() == 1 ? "" : "s",
                                fit.runs.size() == 1 ? "s" : "");
  constants.columns = {text_column("constant", "name"), text_column("unit"),  number_column("catalogue"),
                       number_column("value"),          number_column("low"), number_column("high")};
  for (const OwnConstant& constant : fit.constants) {
    constants.rows.push_back({constant.name, constant.unit, figure(constant.catalogue), figure(constant.value),
                              figure(constant.low), figure(constant.high)});
  }
  constants.notes.push_back(fmt::format("low to high: nine in ten; steps differ by {:.1f} % beyond the constants",
                                        1e2 * fit.profile.fitted->noise));
  for (const UntoldConstant& constant : fit.untold) {
    constants.notes.push_back(fmt::format("{}: {}", constant.name, constant.why));
  }
  if (fit.next) constants.notes.push_back("next run: " + fit.next->why);
  Table runs;
  runs.title = "runs";
  runs.columns = {text_column("run", "id"),  number_column("measured s"), number_column("catalogue s"),
                  number_column("fitted s"), number_column("error %"),    text_column("")};
  runs.columns.back().key = "note";
  for (const FittedOwnRun& run : fit.runs) {
    runs.rows.push_back({run.id, figure(run.measured_s), figure(run.catalogue_s), figure(run.fitted_s),
                         fmt::format("{:.1f}", 1e2 * (run.fitted_s / run.measured_s - 1.0)),
                         run.followed ? "" : "unlike the others, counts for little"});
  }
  return {constants, runs};
}

Table learning_table(const std::vector<LearningPoint>& curve, RunChoice choice) {
  Table table;
  table.title = fmt::format("runs left out, forecast from so many, {}", name_of(choice));
  table.columns = {number_column("runs"),     number_column("MAPE %"),
                   number_column("median %"), number_column("catalogue MAPE %"),
                   number_column("inside %"), number_column("± %", "half_width_percent")};
  for (const LearningPoint& point : curve) {
    table.rows.push_back({fmt::format("{}", point.runs), fmt::format("{:.1f}", 1e2 * point.mape),
                          fmt::format("{:.1f}", 1e2 * point.median), fmt::format("{:.1f}", 1e2 * point.catalogue_mape),
                          fmt::format("{:.1f}", 1e2 * point.inside), fmt::format("{:.1f}", 1e2 * point.half_width)});
  }
  return table;
}

Table hypothesis_table(const std::vector<Hypothesis>& hypotheses) {
  Table table;
  table.title = "why, the most believed first";
  table.columns = {text_column("cause", "name"), number_column("belief %", "score_percent"),
                   number_column("explains s", "explains_s"), text_column("evidence"),
                   text_column("what would confirm it", "check")};
  for (const Hypothesis& one : hypotheses) {
    table.rows.push_back({std::string(name_of(one.cause)), fmt::format("{:.0f}", 1e2 * one.score),
                          fmt::format("{:.4g}", one.explains_s), one.evidence, one.check});
  }
  return table;
}

nlohmann::ordered_json hypotheses_json(const std::vector<Hypothesis>& hypotheses) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Hypothesis& one : hypotheses) {
    all.push_back({{"name", name_of(one.cause)},
                   {"score", one.score},
                   {"explains_s", one.explains_s},
                   {"evidence", one.evidence},
                   {"check", one.check}});
  }
  return all;
}

Table traced_table(const std::vector<TracedRank>& ranks) {
  Table table;
  table.title = "traced, the step of median time of each rank";
  table.columns = {text_column("rank"),
                   number_column("steps"),
                   number_column("step s", "step_s"),
                   number_column("compute s"),
                   number_column("communication s"),
                   number_column("exposed s"),
                   number_column("idle s"),
                   number_column("for data s", "idle_data_s"),
                   number_column("for memory s", "idle_memory_s"),
                   number_column("launched late s", "idle_launch_s")};
  const auto figure = [](double value) { return fmt::format("{:.4g}", value); };
  for (const TracedRank& rank : ranks) {
    const TracedStep& step = rank.typical();
    const auto idle = [&step](IdleCause cause) { return step.idle_by_cause_s[static_cast<std::size_t>(cause)]; };
    table.rows.push_back({rank.rank ? fmt::format("{}", *rank.rank) : rank.file, fmt::format("{}", rank.steps.size()),
                          figure(step.time_s), figure(step.compute_s), figure(step.communication_s),
                          figure(step.exposed_s), figure(step.idle_s), figure(idle(IdleCause::kData)),
                          figure(idle(IdleCause::kMemory)), figure(idle(IdleCause::kLaunch))});
  }
  return table;
}

namespace {

// One rank of a forecast: every stream but that of computation communicates.
StateRow forecast_row(const Timeline& timeline, std::size_t rank) {
  StateRow row;
  row.name = fmt::format("forecast, rank {}", rank);
  std::map<Ticks, std::pair<int, int>> changes;
  for (const Span& span : timeline.ranks[rank]) {
    const bool communicates = !is_action(span.kind) && span.kind != SpanKind::kOptimizer;
    int& begins = communicates ? changes[span.start].second : changes[span.start].first;
    ++begins;
    int& ends = communicates ? changes[span.end].second : changes[span.end].first;
    --ends;
  }
  Ticks from = 0;
  int computes = 0;
  int communicates = 0;
  const auto add = [&](Ticks until) {
    if (until <= from) return;
    const TracedState state = computes > 0 && communicates > 0 ? TracedState::kBoth
                              : computes > 0                   ? TracedState::kCompute
                              : communicates > 0               ? TracedState::kCommunication
                                                               : TracedState::kIdle;
    row.stretches.push_back({static_cast<double>(from) * timeline.units_per_tick,
                             static_cast<double>(until) * timeline.units_per_tick, static_cast<std::size_t>(state)});
    from = until;
  };
  for (const auto& [time, change] : changes) {
    add(time);
    computes += change.first;
    communicates += change.second;
  }
  add(timeline.makespan());
  return row;
}

}  // namespace

StateRows overlay_rows(const Forecast& answer, const std::vector<TracedRank>& ranks) {
  StateRows rows;
  rows.title = fmt::format("{}: forecast and trace of a step", answer.step.job.model.name);
  rows.states = {"compute", "communication", "both", "waiting"};
  for (std::size_t rank = 0; rank < answer.timeline.ranks.size(); ++rank) {
    rows.rows.push_back(forecast_row(answer.timeline, rank));
  }
  for (const TracedRank& rank : ranks) {
    StateRow row;
    row.name = rank.rank ? fmt::format("traced, rank {}", *rank.rank) : "traced, " + rank.file;
    for (const TracedStretch& stretch : rank.typical().stretches) {
      row.stretches.push_back({stretch.start_s, stretch.end_s, static_cast<std::size_t>(stretch.state)});
    }
    rows.rows.push_back(std::move(row));
  }
  return rows;
}

nlohmann::ordered_json traced_json(const std::vector<TracedRank>& ranks) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const TracedRank& rank : ranks) {
    nlohmann::ordered_json one = {{"file", rank.file}};
    one["rank"] = rank.rank ? nlohmann::ordered_json(*rank.rank) : nlohmann::ordered_json(nullptr);
    one["steps"] = nlohmann::ordered_json::array();
    for (const TracedStep& step : rank.steps) {
      nlohmann::ordered_json told = {{"name", step.name},           {"time_s", step.time_s},
                                     {"compute_s", step.compute_s}, {"communication_s", step.communication_s},
                                     {"exposed_s", step.exposed_s}, {"idle_s", step.idle_s}};
      for (std::size_t cause = 0; cause < kIdleCauses; ++cause) {
        told["idle_by_cause"][idle_cause_names()[cause] + "_s"] = step.idle_by_cause_s[cause];
      }
      for (std::size_t work = 0; work < kTraceWorkCount; ++work) {
        told["work"].push_back({{"name", trace_work_names()[work]},
                                {"kernels", step.work[work].kernels},
                                {"seconds", step.work[work].seconds}});
      }
      told["collectives"] = nlohmann::ordered_json::array();
      for (const auto& [name, time] : step.collectives) {
        told["collectives"].push_back({{"name", name}, {"kernels", time.kernels}, {"seconds", time.seconds}});
      }
      one["steps"].push_back(std::move(told));
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace flopcast
