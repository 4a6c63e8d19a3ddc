#include "cli/validation_page.hpp"

#include <utility>
#include <vector>

#include "calibrate/validation/refit_json.hpp"
#include "cli/refit_tables.hpp"
#include "cli/validation_tables.hpp"
#include "reports/chart/scatter.hpp"

namespace flopcast {

namespace {

constexpr int kWorstRows = 40;

constexpr const char* kIntroduction = R"(# How accurate the forecasts are

Written by `flopcast validate --markdown-page`; do not edit. Every row is a measurement that somebody published, with its
source in [calibrate/validation/published](../calibrate/validation/published). Each is mapped to a job by what its source
says of the run, and nothing else: device, links, model, layout, software. No constant belongs to a row, a source or a
model. Rows that a constant of the catalogue was fitted to are counted apart: their errors are no evidence of accuracy.

An error is forecast / measured - 1. The naive forecast knows the FLOPs, the ideal bubble and one MFU for the whole
source, its median: what a spreadsheet would give after the fact.

![forecast against measurement](images/validation.svg)
)";

std::string section(const Table& table) {
  Table plain = table;
  plain.title.clear();
  return "\n## " + table.title + "\n\n" + write_table(plain, Format::kMarkdown);
}

// What the constants leave on models that they were not fitted to.
std::vector<Table> fit_tables() {
  std::vector<Table> tables = refit_tables(stored_refits());
  tables.front().title = "Fitted constants";
  tables.back().title = "Fits with each model left out: mean absolute error of the step time, %";
  std::swap(tables.front(), tables.back());
  return tables;
}

}  // namespace

std::string validation_page(const std::vector<SourceSummary>& sources) {
  std::string page = kIntroduction;
  std::vector<Table> tables = {time_error_table(sources), coverage_table(), memory_error_table(sources),
                               choice_table(sources)};
  for (Table& table : fit_tables()) tables.push_back(std::move(table));
  for (Table& table : std::vector<Table>{rows_table(sources, kWorstRows), open_table(sources), skipped_table(sources),
                                         rows_table(sources, 0)}) {
    tables.push_back(std::move(table));
  }
  for (const Table& table : tables) {
    if (!table.rows.empty()) page += section(table);
  }
  return page;
}

std::string validation_chart(const std::vector<SourceSummary>& sources) {
  ScatterChart chart;
  chart.title = "Step time: forecast against measurement";
  chart.x_label = "measured, seconds";
  chart.y_label = "forecast, seconds";
  chart.band = 0.1;
  for (const SourceSummary& summary : sources) {
    ScatterSeries series{summary.source, {}};
    for (const EvaluatedRow& row : summary.evaluated) {
      if (row.measured_s) series.points.push_back({*row.measured_s, row.predicted_s, row.id});
    }
    if (!series.points.empty()) chart.series.push_back(series);
  }
  return write_scatter_svg(chart);
}

}  // namespace flopcast
