#include "calibrate/tables/tables.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

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

}  // namespace flopcast
