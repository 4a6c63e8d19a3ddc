#include "calibrate/tables/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/text/words.hpp"
#include "model/config/document.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json statistics_json(const ErrorStatistics& errors) {
  const auto of = [&errors](double value) { return errors.rows > 0 ? Json(value) : Json(nullptr); };
  return {{"rows", errors.rows},   {"mape", of(errors.mape)}, {"median", of(errors.median)},
          {"p90", of(errors.p90)}, {"max", of(errors.max)},   {"bias", of(errors.bias)}};
}

Json choices_json(const ChoiceStatistics& choices) {
  const auto of = [&choices](double value) { return choices.groups > 0 ? Json(value) : Json(nullptr); };
  return {{"groups", choices.groups},
          {"rows", choices.rows},
          {"mean_regret", of(choices.mean)},
          {"worst_regret", of(choices.worst)}};
}

std::string signed_percent(double fraction) {
  return fmt::format("{:+.1f}", fraction * 100.0);
}

std::vector<std::string> cells(const ErrorStatistics& errors) {
  if (errors.rows == 0) return std::vector<std::string>(6);
  return {fmt::format("{}", errors.rows),
          percent(errors.median),
          percent(errors.mape),
          percent(errors.p90),
          percent(errors.max),
          signed_percent(errors.bias)};
}

std::vector<Column> error_columns() {
  return {number_column("median %"), number_column("MAPE %"), number_column("p90 %"), number_column("max %"),
          text_column("bias %")};
}

std::vector<double> time_errors(const SourceSummary& summary, bool used_in_fit) {
  std::vector<double> errors;
  for (const EvaluatedRow& row : summary.evaluated) {
    const auto error = row.error();
    if (error && row.used_in_fit == used_in_fit) errors.push_back(*error);
  }
  return errors;
}

// Share of the measured steps with a forecast interval that lie inside it.
std::string share_inside(const SourceSummary& summary, bool used_in_fit) {
  int rows = 0;
  int inside = 0;
  for (const EvaluatedRow& row : summary.evaluated) {
    const auto found = row.inside();
    if (!found || row.used_in_fit != used_in_fit) continue;
    ++rows;
    inside += *found ? 1 : 0;
  }
  return rows == 0 ? "" : fmt::format("{:.0f}", 1e2 * inside / rows);
}

Json coverage_json() {
  Json list = Json::array();
  for (const Coverage& coverage : interval_coverage(shipped_source_errors())) {
    list.push_back({{"devices", coverage.devices},
                    {"stacks", coverage.stacks},
                    {"rows", coverage.rows},
                    {"covered", coverage.covered},
                    {"mean_half_width", coverage.half_width}});
  }
  return list;
}

std::vector<SourceSummary> with_groups(const std::vector<SourceSummary>& sources) {
  std::vector<SourceSummary> all;
  for (const SourceSummary& summary : sources) {
    all.push_back(summary);
    for (SourceSummary& group : groups_of(summary)) all.push_back(std::move(group));
  }
  return all;
}

void add_group_figures(const SourceSummary& summary, Json& json) {
  const bool any = summary.time.rows > 0;
  json["group"] = summary.group.empty() ? Json(nullptr) : Json(summary.group);
  json["n"] = summary.time.rows;
  json["mape"] = any ? Json(summary.time.mape) : Json(nullptr);
  json["bias"] = any ? Json(summary.time.bias) : Json(nullptr);
  json["inside"] = or_null(summary.of_group.inside);
  json["half_width"] = or_null(summary.of_group.half_width);
  json["memory_mape"] = summary.memory.rows > 0 ? Json(summary.memory.mape) : Json(nullptr);
  json["regret"] = or_null(summary.of_group.regret);
  json["rank_correlation"] = or_null(summary.of_group.rank_correlation);
  json["floor"] = or_null(summary.of_group.floor);
}

constexpr int kWorstRows = 40;

constexpr const char* kIntroduction = R"(# How accurate the forecasts are

Written by `flopcast validate --markdown-page`; do not edit. Every row is a published measurement, with its source in
[calibrate/validation/published](../calibrate/validation/published). Each is mapped to a job using only the facts that its
source gives about the run: device, links, model, layout, software. No constant belongs to a row, a source or a model.
Rows that a constant of the catalogue was fitted to are counted separately: their errors are not evidence of accuracy.

An error is forecast / measured - 1. The naive forecast knows the FLOPs, the ideal bubble and one MFU for the whole
source, its median: the result of a spreadsheet after the fact.

![forecast against measurement](images/validation.svg)
)";

std::string section(const Table& table) {
  Table plain = table;
  plain.title.clear();
  return "\n## " + table.title + "\n\n" + write_table(plain, Format::kMarkdown);
}

// Errors that remain on models that the constants were not fitted to.
std::vector<Table> fit_tables() {
  std::vector<Table> tables = refit_tables(stored_refits());
  tables.front().title = "Fitted constants";
  tables.back().title = "Fits with each model left out: mean absolute error of the step time, %";
  std::swap(tables.front(), tables.back());
  return tables;
}

// Results for steps of one kind on one device.
struct Expectation {
  std::set<std::string> sources;
  std::vector<double> errors;
  int inside = 0;
  bool fitted = false;
};

// Accuracy that a user of a device may expect.
Table expectation_table(const std::vector<SourceSummary>& sources) {
  Table table = {
      .title = "Expected accuracy of the step time, by device",
      .columns = {text_column("device"), text_column("format"), text_column("kind"), number_column("sources"),
                  number_column("steps"), text_column("fitted"), number_column("MAPE %"), number_column("median %"),
                  text_column("bias %"), number_column("inside %")}};
  std::map<std::array<std::string, 3>, Expectation> kinds;
  for (const SourceSummary& summary : sources) {
    for (const EvaluatedRow& row : summary.evaluated) {
      const std::optional<double> error = row.error();
      if (!error || !row.facts) continue;
      const bool fp8 = row.facts->precision == Precision::kFp8;
      const char* kind = row.facts->experts ? "experts" : row.facts->slow_launches ? "dense, launch-bound" : "dense";
      Expectation& expected = kinds[{row.facts->device, fp8 ? "fp8" : "16 bits", kind}];
      expected.sources.insert(summary.source);
      expected.errors.push_back(*error);
      expected.inside += row.inside().value_or(false) ? 1 : 0;
      expected.fitted = expected.fitted || row.used_in_fit;
    }
  }
  for (const auto& [kind, expected] : kinds) {
    const ErrorStatistics statistics = statistics_of(expected.errors);
    table.rows.push_back({kind[0], kind[1], kind[2], fmt::format("{}", expected.sources.size()),
                          fmt::format("{}", statistics.rows), expected.fitted ? "yes" : "no", percent(statistics.mape),
                          percent(statistics.median), signed_percent(statistics.bias),
                          percent(static_cast<double>(expected.inside) / statistics.rows)});
  }
  table.notes.emplace_back(
      "fitted: a constant was fitted to some of these steps; launch-bound: the host takes longer to launch a kernel "
      "than most kernels run; inside: share inside the forecast's 90 % interval");
  return table;
}

// Every source and group: number of rows, errors, interval, choosing by forecast, memory, floor.
Table group_table(const std::vector<SourceSummary>& sources) {
  Table table = {
      .title = "By source and group",
      .columns = {text_column("source"), text_column("group"), number_column("n"), number_column("MAPE %"),
                  text_column("bias %"), number_column("inside %"), number_column("± %", "half_width_percent"),
                  number_column("regret %"), number_column("rank correlation"), number_column("memory MAPE %"),
                  number_column("floor %")}};
  const auto share = [](const std::optional<double>& value) { return value ? percent(*value) : ""; };
  for (const SourceSummary& summary : with_groups(sources)) {
    if (summary.time.rows == 0) continue;
    const GroupStatistics& group = summary.of_group;
    table.rows.push_back({summary.source, summary.group, fmt::format("{}", summary.time.rows),
                          percent(summary.time.mape), signed_percent(summary.time.bias), share(group.inside),
                          share(group.half_width), share(group.regret),
                          group.rank_correlation ? fmt::format("{:.2f}", *group.rank_correlation) : "",
                          summary.memory.rows > 0 ? percent(summary.memory.mape) : "", share(group.floor)});
  }
  table.notes.emplace_back(
      "regret and rank correlation: over questions (model, devices, batch, format) with five rows or more; floor: "
      "spread between measurements of the same job");
  return table;
}

// Rows with identical completed jobs, and the spread of their measurements.
Table floor_table(const std::vector<SourceSummary>& sources) {
  Table table = {.title = "Equal jobs, different measurements",
                 .columns = {text_column("source"), text_column("rows"), number_column("spread %")}};
  constexpr std::size_t kShown = 4;
  for (const SourceSummary& summary : sources) {
    for (const EqualJobs& equal : equal_jobs(summary.evaluated)) {
      std::string rows;
      for (std::size_t index = 0; index < std::min(kShown, equal.ids.size()); ++index) {
        rows += (index > 0 ? ", " : "") + equal.ids[index];
      }
      if (equal.ids.size() > kShown) rows += fmt::format(" and {} more", equal.ids.size() - kShown);
      table.rows.push_back({summary.source, rows, percent(equal.spread)});
    }
  }
  return table;
}

// Errors of the step time by source; rows that constants were fitted to are listed separately.
Table time_error_table(const std::vector<SourceSummary>& sources) {
  Table table = {.title = "Step time: forecast against measurement",
                 .columns = {text_column("source"), number_column("rows"), number_column("skipped"),
                             text_column("used in a fit", "used_in_fit"), number_column("compared")}};
  for (const Column& column : error_columns()) table.columns.push_back(column);
  table.columns.push_back(number_column("naive MAPE %"));
  table.columns.push_back(number_column("in interval %"));
  for (const SourceSummary& summary : sources) {
    const std::string naive = summary.naive_mape ? percent(*summary.naive_mape) : "";
    bool any = false;
    for (const bool used : {false, true}) {
      const std::vector<double> errors = time_errors(summary, used);
      if (errors.empty()) continue;
      any = true;
      std::vector<std::string> row = {summary.source, fmt::format("{}", summary.rows),
                                      fmt::format("{}", summary.skipped.size()), used ? "yes" : "no"};
      for (std::string& cell : cells(statistics_of(errors))) row.push_back(std::move(cell));
      row.push_back(naive);
      row.push_back(share_inside(summary, used));
      table.rows.push_back(std::move(row));
    }
    if (any) continue;
    std::vector<std::string> row = {summary.source, fmt::format("{}", summary.rows),
                                    fmt::format("{}", summary.skipped.size()), ""};
    row.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  table.notes.emplace_back(
      "errors are |forecast / measured - 1|, bias is signed; naive: one MFU for the source, ideal bubble; in interval: "
      "measured steps inside the forecast's 90 % interval");
  for (const SourceSummary& summary : sources) {
    if (summary.drift) table.notes.push_back(fmt::format("{}: {}", summary.source, drift_text(*summary.drift)));
  }
  return table;
}

// Coverage on the published steps that come with the program.
Table coverage_table() {
  Table table = {.title = "Coverage of the 90 % interval, each source left out entirely",
                 .columns = {text_column("devices"), text_column("stacks"), number_column("steps"),
                             number_column("± %", "half_width_percent"), number_column("inside %")}};
  const std::vector<Coverage> coverages = interval_coverage(shipped_source_errors());
  for (const Coverage& coverage : coverages) {
    table.rows.push_back({coverage.devices, coverage.stacks, fmt::format("{}", coverage.rows),
                          percent(coverage.half_width),
                          percent(static_cast<double>(coverage.covered) / coverage.rows)});
  }
  table.rows.push_back({"all, sources weighted equally", "", "", "", percent(mean_coverage(coverages))});
  table.notes.emplace_back(
      "one row per source, with intervals fitted without it; ±: mean over its steps; see docs/uncertainty.md");
  return table;
}

// Cost of choosing the row with the fastest forecast, and errors without rows that others contradict.
Table choice_table(const std::vector<SourceSummary>& sources) {
  Table table = {
      .title = "Choosing by forecast, and contradictory rows",
      .columns = {text_column("source"), number_column("models", "groups"),
                  number_column("rows to choose from", "rows"), number_column("mean regret %"),
                  number_column("worst regret %"), number_column("speed-up over 1f1b, MAPE %", "speed_up_mape_percent"),
                  number_column("contradicted rows"), number_column("MAPE % without them", "undisputed_mape_percent")}};
  for (const SourceSummary& summary : sources) {
    const ChoiceStatistics& choices = summary.choices;
    if (choices.groups == 0 && summary.contradicted_rows == 0) continue;
    std::vector<std::string> row = {summary.source, fmt::format("{}", choices.groups), fmt::format("{}", choices.rows)};
    row.push_back(choices.groups > 0 ? percent(choices.mean) : "");
    row.push_back(choices.groups > 0 ? percent(choices.worst) : "");
    row.push_back(summary.speed_up.rows > 0 ? percent(summary.speed_up.mape) : "");
    row.push_back(fmt::format("{}", summary.contradicted_rows));
    row.push_back(summary.undisputed_time.rows > 0 ? percent(summary.undisputed_time.mape) : "");
    table.rows.push_back(std::move(row));
  }
  table.notes.emplace_back(
      "regret: measured time of the row with the fastest forecast over that of the fastest row, among three or more "
      "rows "
      "of a model on the same devices with the same batch");
  table.notes.emplace_back(
      "contradicted: another row is faster without the ideal bubble, although it has more tensor parallelism inside "
      "the "
      "node and no larger microbatch, or differs only by a smaller microbatch");
  return table;
}

// Errors of the memory by source; empty if no source measured memory.
Table memory_error_table(const std::vector<SourceSummary>& sources) {
  Table table = {.title = "Memory of the fullest rank", .columns = {text_column("source"), number_column("compared")}};
  for (const Column& column : error_columns()) table.columns.push_back(column);
  table.columns.push_back(text_column("out of memory, predicted", "out_of_memory"));
  for (const SourceSummary& summary : sources) {
    if (summary.memory.rows == 0 && summary.out_of_memory_rows == 0) continue;
    std::vector<std::string> row = {summary.source};
    for (std::string& cell : cells(summary.memory)) row.push_back(std::move(cell));
    row.push_back(summary.out_of_memory_rows == 0
                      ? ""
                      : fmt::format("{} of {}", summary.out_of_memory_found, summary.out_of_memory_rows));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Number of skipped rows by reason.
Table skipped_table(const std::vector<SourceSummary>& sources) {
  Table table = {.title = "Rows without a forecast",
                 .columns = {text_column("source"), number_column("rows"), text_column("reason")}};
  for (const SourceSummary& summary : sources) {
    std::map<std::string, int> reasons;
    for (const SkippedRow& row : summary.skipped) ++reasons[row.reason];
    for (const auto& [reason, count] : reasons)
      table.rows.push_back({summary.source, fmt::format("{}", count), reason});
  }
  return table;
}

// Rows with unspecified details: the fastest and the slowest forecast over the plausible choices.
Table open_table(const std::vector<SourceSummary>& sources) {
  Table table = {.title = "Rows with unspecified details: range over every plausible choice",
                 .columns = {text_column("source"), text_column("row", "id"), text_column("unspecified", "open"),
                             number_column("forecasts"), text_column("fits"), number_column("fastest s"),
                             number_column("slowest s"), number_column("measured s"), text_column("fastest error %"),
                             text_column("slowest error %")}};
  for (const SourceSummary& summary : sources) {
    for (const OpenRow& row : summary.open) {
      table.rows.push_back({row.source, row.id, row.open, fmt::format("{}", row.forecasts), row.fits ? "yes" : "no",
                            fmt::format("{:.4g}", row.fastest_s), fmt::format("{:.4g}", row.slowest_s),
                            fmt::format("{:.4g}", row.measured_s), signed_percent(row.fastest_s / row.measured_s - 1.0),
                            signed_percent(row.slowest_s / row.measured_s - 1.0)});
    }
  }
  return table;
}

}  // namespace

std::string write_validation(const std::vector<SourceSummary>& sources) {
  Json json = {{"schema", "flopcast.validation/1"},
               {"sources", Json::array()},
               {"rows", Json::array()},
               {"open_rows", Json::array()},
               {"coverage", coverage_json()}};
  Json inexpressible = Json::array();
  for (const SourceSummary& summary : with_groups(sources)) {
    for (const std::string& row : summary.inexpressible) inexpressible.push_back(row);
    Json skipped = Json::array();
    for (const SkippedRow& row : summary.skipped) skipped.push_back({{"id", row.id}, {"reason", row.reason}});
    Json time = statistics_json(summary.time);
    time["naive_mape"] = or_null(summary.naive_mape);
    time["contradicted_rows"] = summary.contradicted_rows;
    time["undisputed"] = statistics_json(summary.undisputed_time);
    Json memory = statistics_json(summary.memory);
    memory["out_of_memory_rows"] = summary.out_of_memory_rows;
    memory["out_of_memory_found"] = summary.out_of_memory_found;
    json["sources"].push_back({{"source", summary.source},
                               {"rows", summary.rows},
                               {"evaluated", summary.evaluated.size()},
                               {"skipped", skipped},
                               {"fit_rows", summary.fit_rows},
                               {"time", time},
                               {"memory", memory},
                               {"choices", choices_json(summary.choices)},
                               {"speed_up", statistics_json(summary.speed_up)}});
    add_group_figures(summary, json["sources"].back());
    if (summary.drift) {
      json["sources"].back()["drift"] = {{"since", summary.drift->since},
                                         {"runs_before", summary.drift->runs_before},
                                         {"runs_since", summary.drift->runs_since},
                                         {"error_before", summary.drift->error_before},
                                         {"error_since", summary.drift->error_since}};
    }
    if (!summary.group.empty()) continue;
    for (const OpenRow& row : summary.open) {
      json["open_rows"].push_back({{"id", row.id},
                                   {"source", row.source},
                                   {"open", row.open},
                                   {"forecasts", row.forecasts},
                                   {"fits", row.fits},
                                   {"fastest_s", row.fastest_s},
                                   {"slowest_s", row.slowest_s},
                                   {"measured_s", row.measured_s}});
    }
    for (const EvaluatedRow& row : summary.evaluated) {
      json["rows"].push_back({{"id", row.id},
                              {"source", row.source},
                              {"used_in_fit", row.used_in_fit},
                              {"predicted_s", row.predicted_s},
                              {"measured_s", or_null(row.measured_s)},
                              {"error", or_null(row.error())},
                              {"half_width", row.interval ? Json(row.interval->half_width) : Json(nullptr)},
                              {"low_s", row.interval ? Json(row.interval->low_s) : Json(nullptr)},
                              {"high_s", row.interval ? Json(row.interval->high_s) : Json(nullptr)},
                              {"group", row.group},
                              {"memory_predicted_gib", or_null(row.memory_predicted_gib)},
                              {"memory_measured_gib", or_null(row.memory_measured_gib)}});
    }
  }
  json["inexpressible"] = std::move(inexpressible);
  return dumped(json, 2);
}

Table rows_table(const std::vector<SourceSummary>& sources, int count) {
  std::vector<EvaluatedRow> rows;
  for (const SourceSummary& summary : sources) {
    for (const EvaluatedRow& row : summary.evaluated) {
      if (row.error()) rows.push_back(row);
    }
  }
  if (count > 0) {
    std::stable_sort(rows.begin(), rows.end(), [](const EvaluatedRow& a, const EvaluatedRow& b) {
      return std::abs(*a.error()) > std::abs(*b.error());
    });
    if (rows.size() > static_cast<std::size_t>(count)) rows.resize(static_cast<std::size_t>(count));
  }
  Table table = {
      .title = count > 0 ? "Worst rows" : "All rows",
      .columns = {text_column("source"), text_column("row", "id"), text_column("used in a fit", "used_in_fit"),
                  number_column("forecast s", "predicted_s"), number_column("measured s"), text_column("error %")}};
  for (const EvaluatedRow& row : rows) {
    table.rows.push_back({row.source, row.id, row.used_in_fit ? "yes" : "no", fmt::format("{:.4g}", row.predicted_s),
                          fmt::format("{:.4g}", *row.measured_s), signed_percent(*row.error())});
  }
  return table;
}

std::vector<Table> validation_tables(const std::vector<SourceSummary>& sources, bool shipped) {
  constexpr int kWorst = 10;
  std::vector<Table> tables = {time_error_table(sources)};
  if (shipped) tables.push_back(coverage_table());
  for (Table table : {group_table(sources), memory_error_table(sources), choice_table(sources), floor_table(sources),
                      open_table(sources), rows_table(sources, kWorst), skipped_table(sources)}) {
    if (!table.rows.empty()) tables.push_back(std::move(table));
  }
  return tables;
}

std::string validation_page(const std::vector<SourceSummary>& sources) {
  std::string page = kIntroduction;
  std::vector<Table> tables = {expectation_table(sources), group_table(sources),        time_error_table(sources),
                               coverage_table(),           memory_error_table(sources), choice_table(sources),
                               floor_table(sources)};
  for (Table& table : fit_tables()) tables.push_back(std::move(table));
  tables.push_back(ablation_table());
  for (Table& table : std::vector<Table>{rows_table(sources, kWorstRows), open_table(sources), skipped_table(sources),
                                         rows_table(sources, 0)}) {
    tables.push_back(std::move(table));
  }
  for (const Table& table : tables) {
    if (!table.rows.empty()) page += section(table);
  }
  return page;
}

ScatterChart validation_chart(const std::vector<SourceSummary>& sources) {
  ScatterChart chart;
  chart.title = "Step time: forecast against measurement";
  chart.x_label = "measured, seconds";
  chart.y_label = "forecast, seconds";
  chart.band = 0.1;
  for (const SourceSummary& summary : sources) {
    Series series{summary.source, {}};
    for (const EvaluatedRow& row : summary.evaluated) {
      if (row.measured_s) series.points.push_back({*row.measured_s, row.predicted_s, row.id});
    }
    if (!series.points.empty()) chart.series.push_back(series);
  }
  return chart;
}

}  // namespace flopcast
