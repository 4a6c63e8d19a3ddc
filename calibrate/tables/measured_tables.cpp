#include "calibrate/tables/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

std::string source_text(const RunComparison& run) {
  if (run.times_from == TimesFrom::kJob) return fmt::format("of the job's cluster, {}", run.job.step.job.cluster.name);
  return fmt::format("{} on these ranks just before and after the run; alone these forecast {:.6g} and {:.6g} s",
                     run.slept ? "sleep times, with updates and messages calibrated" : "calibrated",
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
  table.notes.push_back("replay: this program simulated with the run's own median times; transfers take no time");
  table.notes.push_back(
      fmt::format("measured: {} repetitions after {} warm-up steps, {} of them disturbed; median step "
                  "shown, quartiles {:.6g} and {:.6g} s",
                  run.step_seconds.size(), run.warmup, run.disturbance.steps, percentile(run.step_seconds, 0.25),
                  percentile(run.step_seconds, 0.75)));
  if (!run.slept) {
    table.notes.push_back(run.losses.size() == 1
                              ? fmt::format("mean loss {:.4f}", run.losses.front())
                              : fmt::format("loss {:.4f} in the first and {:.4f} in the last of {} steps",
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

std::vector<Table> user_fit_tables(const UserFit& fit) {
  const auto figure = [](double value) { return fmt::format("{:.4g}", value); };
  Table constants;
  constants.title = fmt::format("constants determined by {} run{}", fit.runs.size(), fit.runs.size() == 1 ? "" : "s");
  constants.columns = {text_column("constant", "name"), text_column("unit"),  number_column("catalogue"),
                       number_column("value"),          number_column("low"), number_column("high")};
  for (const OwnConstant& constant : fit.constants) {
    constants.rows.push_back({constant.name, constant.unit, figure(constant.catalogue), figure(constant.value),
                              figure(constant.low), figure(constant.high)});
  }
  constants.notes.push_back(fmt::format("low to high: 90 % interval; steps vary by {:.1f} % around the fit",
                                        1e2 * fit.profile.fitted->noise));
  for (const UndeterminedConstant& constant : fit.undetermined) {
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
                         run.followed ? "" : "outlier, counts for little"});
  }
  return {constants, runs};
}

Table learning_table(const std::vector<LearningPoint>& curve, RunChoice choice) {
  Table table;
  table.title = fmt::format("forecasts of left-out runs by number of fitted runs, {}", name_of(choice));
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
  table.title = "possible causes, most likely first";
  table.columns = {text_column("cause", "name"), number_column("likelihood %", "score_percent"),
                   number_column("explains s", "explains_s"), text_column("evidence"),
                   text_column("how to confirm it", "check")};
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
  table.title = "traced, median step of each rank";
  table.columns = {text_column("rank"),
                   number_column("steps"),
                   number_column("step s", "step_s"),
                   number_column("compute s"),
                   number_column("communication s"),
                   number_column("exposed s"),
                   number_column("idle s"),
                   number_column("data wait s", "idle_data_s"),
                   number_column("memory wait s", "idle_memory_s"),
                   number_column("late launch s", "idle_launch_s")};
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

// States of one rank of a forecast: all streams but computation count as communication.
std::vector<TracedInterval> forecast_stretches(const Timeline& timeline, std::size_t rank) {
  std::vector<TracedSpan> compute;
  std::vector<TracedSpan> communication;
  const auto seconds = [&timeline](Ticks time) { return static_cast<double>(time) * timeline.units_per_tick; };
  for (const Span& span : timeline.ranks[rank]) {
    const bool computes = is_action(span.kind) || span.kind == SpanKind::kOptimizer;
    (computes ? compute : communication).push_back({seconds(span.start), seconds(span.end)});
  }
  return stretches_of(compute, communication, {0.0, seconds(timeline.makespan())});
}

StateRow state_row(const std::string& name, const std::vector<TracedInterval>& stretches) {
  StateRow row;
  row.name = name;
  for (const TracedInterval& stretch : stretches) {
    row.stretches.push_back({stretch.start_s, stretch.end_s, static_cast<std::size_t>(stretch.state)});
  }
  return row;
}

}  // namespace

StateRows overlay_rows(const Forecast& answer, const std::vector<TracedRank>& ranks) {
  StateRows rows;
  rows.title = fmt::format("{}: forecast and trace of a step", answer.step.job.model.name);
  rows.states = {"compute", "communication", "both", "waiting"};
  for (std::size_t rank = 0; rank < answer.timeline.ranks.size(); ++rank) {
    rows.rows.push_back(state_row(fmt::format("forecast, rank {}", rank), forecast_stretches(answer.timeline, rank)));
  }
  for (const TracedRank& rank : ranks) {
    rows.rows.push_back(state_row(rank.rank ? fmt::format("traced, rank {}", *rank.rank) : "traced, " + rank.file,
                                  rank.typical().stretches));
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
        told["idle_by_cause"][names_of<IdleCause>()[cause] + "_s"] = step.idle_by_cause_s[cause];
      }
      for (std::size_t work = 0; work < kTraceWorkCount; ++work) {
        told["work"].push_back({{"name", names_of<TraceWork>()[work]},
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

namespace {

// Best measured rate of a figure that a datasheet has: GEMMs of a precision, and copies within device memory.
struct AchievedPeak {
  std::string what;    // the fit that the samples belong to
  std::string sample;  // the fastest sample
  double rate = 0.0;   // its FLOP/s or bytes/s
  double datasheet = 0.0;
};

std::optional<Device> catalogued(const DeviceProfile& profile) {
  const auto device = profile.cluster->find("device");
  if (device == profile.cluster->end() || !device->is_object() || !device->contains("name")) return std::nullopt;
  const nlohmann::json& name = device->at("name");
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kDevices);
  if (!name.is_string() || std::find(names.begin(), names.end(), name.get<std::string>()) == names.end()) {
    return std::nullopt;
  }
  std::vector<std::string> ignored;
  return read_device(name, "device", ignored, {});
}

// "gemm bf16 (dgrad)": the precision is the second word.
std::optional<Precision> precision_named(const std::string& what) {
  const std::string kind = "gemm ";
  if (what.rfind(kind, 0) != 0) return std::nullopt;
  const std::string word = what.substr(kind.size(), what.find(' ', kind.size()) - kind.size());
  return parse<Precision>(word);
}

// Peaks of the catalogue's device that the profile names; empty if it names none. Copies count only with the largest
// one, because smaller ones may have fitted into a cache.
std::vector<AchievedPeak> achieved_peaks(const DeviceProfile& profile) {
  const std::optional<Device> device = catalogued(profile);
  if (!device) return {};
  std::vector<AchievedPeak> peaks;
  for (const ProfileFit& fit : profile.fits) {
    if (fit.points.empty()) continue;
    const std::optional<Precision> precision = fit.unit == "FLOP" ? precision_named(fit.what) : std::nullopt;
    const bool copies = fit.what == "memory_copy";
    if (!precision && !copies) continue;
    const auto best = std::max_element(fit.points.begin(), fit.points.end(), [&](const auto& a, const auto& b) {
      return copies ? a.x < b.x : a.x / a.measured_s < b.x / b.measured_s;
    });
    const double datasheet = copies ? device->memory_bandwidth.value() : device->peak_of(*precision).value();
    if (datasheet > 0.0) peaks.push_back({fit.what, best->label, best->x / best->measured_s, datasheet});
  }
  return peaks;
}

struct Miss {
  const ProfileFit* fit = nullptr;
  const ProfilePoint* point = nullptr;
  double error() const { return point->fitted_s / point->measured_s - 1.0; }
};

Table errors_table(const DeviceProfile& profile) {
  Table table = {
      .title = fmt::format("{}: {}{}{}, {}", profile.name, profile.source, profile.date.empty() ? "" : ", ",
                           profile.date, profile.confidence),
      .columns = {text_column("fit"), number_column("samples"), number_column("median error %"),
                  number_column("95 % below", "p95_error_percent"), number_column("largest %", "largest_error_percent"),
                  number_column("left out, median %", "left_out_median_error_percent")}};
  for (const ProfileFit& fit : profile.fits) {
    table.rows.push_back({fit.what, std::to_string(fit.points.size()), percent(fit.median_error),
                          percent(fit.p95_error), percent(fit.largest_error), percent(fit.left_out_median_error)});
  }
  table.notes = {"left out: each sample predicted by a fit of the others"};
  return table;
}

Table worst_table(const DeviceProfile& profile) {
  std::vector<Miss> misses;
  for (const ProfileFit& fit : profile.fits) {
    for (const ProfilePoint& point : fit.points) misses.push_back({&fit, &point});
  }
  std::stable_sort(misses.begin(), misses.end(),
                   [](const Miss& a, const Miss& b) { return std::abs(a.error()) > std::abs(b.error()); });
  constexpr std::size_t kShown = 10;
  misses.resize(std::min(misses.size(), kShown));
  Table table = {.title = "worst samples",
                 .columns = {text_column("fit"), text_column("sample"), number_column("measured us"),
                             number_column("fitted us"), number_column("error %")}};
  for (const Miss& miss : misses) {
    table.rows.push_back({miss.fit->what, miss.point->label, fmt::format("{:.4g}", 1e6 * miss.point->measured_s),
                          fmt::format("{:.4g}", 1e6 * miss.point->fitted_s), percent(miss.error())});
  }
  return table;
}

std::string rate_text(const AchievedPeak& peak, double rate) {
  return peak.what == "memory_copy" ? fmt::format("{:.0f} GB/s", rate / 1e9)
                                    : fmt::format("{:.1f} TFLOP/s", rate / 1e12);
}

Table peaks_table(const std::vector<AchievedPeak>& peaks) {
  Table table = {.title = "fastest samples compared with the datasheet",
                 .columns = {text_column("fit", "of"), text_column("sample"), text_column("achieved"),
                             text_column("datasheet"), number_column("share %")}};
  for (const AchievedPeak& peak : peaks) {
    table.rows.push_back({peak.what, peak.sample, rate_text(peak, peak.rate), rate_text(peak, peak.datasheet),
                          percent(peak.rate / peak.datasheet)});
  }
  table.notes = {"copies: the largest one, which exceeds every cache"};
  return table;
}

const OverlapLine* overlap_of(const DeviceProfile& profile, const ProfileFit& fit) {
  for (const OverlapLine& line : profile.overlaps) {
    if (line.what == fit.what) return &line;
  }
  return nullptr;
}

// Overlapped time over time alone: fitted to the number of channels, and measured.
double fitted_factor(const OverlapLine& line, const ProfilePoint& point) {
  return line.factor(point.x);
}
double measured_factor(const OverlapLine& line, const ProfilePoint& point) {
  return line.factor(point.x) * point.measured_s / point.fitted_s;
}

Table overlaps_table(const DeviceProfile& profile) {
  Table table = {.title = "slowdown under overlap, by number of channels",
                 .columns = {text_column("sample"), number_column("channels"), number_column("slower %"),
                             number_column("fitted %")}};
  for (const ProfileFit& fit : profile.fits) {
    const OverlapLine* line = overlap_of(profile, fit);
    if (line == nullptr) continue;
    for (const ProfilePoint& point : fit.points) {
      table.rows.push_back({point.label, fmt::format("{:.0f}", point.x), percent(measured_factor(*line, point) - 1.0),
                            percent(fitted_factor(*line, point) - 1.0)});
    }
  }
  table.notes = {"forecasts do not use these slowdowns: theirs are fitted to published steps"};
  return table;
}

void add_figures(const nlohmann::json& values, const std::string& prefix, Table& table) {
  for (const auto& item : values.items()) {
    const std::string name = prefix + item.key();
    if (item.value().is_object()) {
      add_figures(item.value(), name + ".", table);
    } else {
      table.rows.push_back({name, item.value().is_string() ? item.value().get<std::string>() : dumped(item.value())});
    }
  }
}

Table figures_table(const DeviceProfile& profile) {
  Table table = {.title = fmt::format("cluster figures of {}", profile.name),
                 .columns = {text_column("figure"), text_column("value")}};
  add_figures(profile.cluster, "", table);
  return table;
}

SeriesChart overlap_chart(const ProfileFit& fit, const OverlapLine& line) {
  SeriesChart chart;
  chart.title = fmt::format("{}, median error {} %", fit.what, percent(fit.median_error));
  chart.x = {"channels"};
  chart.y = {"overlapped time / time alone"};
  chart.y.from_zero = true;
  Series measured{"measured", {}, SeriesStyle::kPoints};
  for (const ProfilePoint& point : fit.points) {
    measured.points.push_back({point.x, measured_factor(line, point), point.label});
  }
  Series fitted{"fitted", {}, SeriesStyle::kLine};
  for (const double channels : {0.0, static_cast<double>(line.most_channels)}) {
    fitted.points.push_back({channels, line.factor(channels), "fitted"});
  }
  chart.series = {std::move(measured), std::move(fitted)};
  return chart;
}

// Time at the datasheet's rate.
Series datasheet_line(const ProfileFit& fit, const AchievedPeak& peak) {
  const auto [least, most] =
      std::minmax_element(fit.points.begin(), fit.points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  Series line{fmt::format("datasheet ({})", rate_text(peak, peak.datasheet)), {}, SeriesStyle::kDashed};
  for (const double amount : {least->x, most->x}) {
    line.points.push_back({amount, amount / peak.datasheet, rate_text(peak, peak.datasheet)});
  }
  return line;
}

}  // namespace

std::vector<Table> profile_tables(const DeviceProfile& profile) {
  std::vector<Table> tables;
  if (!profile.fits.empty()) tables.push_back(errors_table(profile));
  const std::vector<AchievedPeak> peaks = achieved_peaks(profile);
  if (!peaks.empty()) tables.push_back(peaks_table(peaks));
  if (!profile.overlaps.empty()) tables.push_back(overlaps_table(profile));
  if (!profile.cluster->empty()) tables.push_back(figures_table(profile));
  if (!profile.fits.empty()) tables.push_back(worst_table(profile));
  return tables;
}

std::vector<SeriesChart> profile_charts(const DeviceProfile& profile) {
  const std::vector<AchievedPeak> peaks = achieved_peaks(profile);
  std::vector<SeriesChart> charts;
  for (const ProfileFit& fit : profile.fits) {
    if (fit.points.empty()) continue;
    if (const OverlapLine* line = overlap_of(profile, fit)) {
      charts.push_back(overlap_chart(fit, *line));
      continue;
    }
    SeriesChart chart;
    chart.title = fmt::format("{}, median error {} %", fit.what, percent(fit.median_error));
    chart.x = {fit.unit, true};
    chart.y = {"seconds", true};
    // GEMMs with the same FLOPs take different times: a line between them would be meaningless.
    const bool line = fit.unit == "bytes";
    Series measured{"measured", {}, SeriesStyle::kPoints};
    Series fitted{"fitted", {}, line ? SeriesStyle::kLine : SeriesStyle::kCrosses};
    for (const ProfilePoint& point : fit.points) {
      measured.points.push_back({point.x, point.measured_s, point.label});
      fitted.points.push_back({point.x, point.fitted_s, point.label});
    }
    chart.series = {std::move(measured), std::move(fitted)};
    const auto peak =
        std::find_if(peaks.begin(), peaks.end(), [&fit](const AchievedPeak& other) { return other.what == fit.what; });
    if (peak != peaks.end()) {
      chart.series.front().name += fmt::format(" ({})", rate_text(*peak, peak->rate));
      chart.series.push_back(datasheet_line(fit, *peak));
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

}  // namespace flopcast
