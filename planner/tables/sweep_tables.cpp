#include "planner/tables/tables.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/config/document.hpp"
#include "sim/files/result_file.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr SweepMetric kMetrics[] = {
    {"step_s", "step time, s", "/iteration/time_s", 1.0, true},
    {"tokens_per_s", "tokens per second", "/iteration/tokens_per_s", 1.0, false},
    {"mfu_percent", "MFU, %", "/iteration/mfu", 100.0, false},
    {"bubble_percent", "bubble, %", "/bubble/fraction", 100.0, true},
    {"exposed_percent", "exposed communication, %", "/communication/exposed_fraction", 100.0, true},
    {"peak_gib", "peak memory, GiB", "/memory/peak_gib", 1.0, true},
    {"days", "days", "/training/days", 1.0, true},
    {"run_days", "days with failures, median", "/run/days/p50", 1.0, true},
    {"goodput_percent", "goodput, %, median", "/run/goodput/p50", 100.0, false}};
// The last metrics apply to jobs with failures.
constexpr std::size_t kRunMetrics = 2;

Json row_json(const SweepGrid& grid, std::size_t index, Json result) {
  Json values = Json::object();
  const std::vector<std::string> texts = grid.values(index);
  for (std::size_t axis = 0; axis < texts.size(); ++axis) values[grid.axes()[axis].key] = texts[axis];
  return {{"values", std::move(values)}, {"result", std::move(result)}};
}

// The part of a result that row_of_json() reads.
Json figures_of(const Json& result) {
  Json figures = Json::object();
  for (const SweepMetric& metric : kMetrics) {
    const Json::json_pointer pointer(metric.pointer);
    if (result.contains(pointer)) figures[pointer] = result.at(pointer);
  }
  figures["memory"]["fits"] = result.at("memory").at("fits");
  return figures;
}

SweepRow row_of_json(const SweepGrid& grid, const Json& json) {
  SweepRow row;
  for (const SweepAxis& axis : grid.axes()) row.values.push_back(json.at("values").at(axis.key).get<std::string>());
  const Json& result = json.at("result");
  for (const SweepMetric& metric : kMetrics) {
    const Json::json_pointer pointer(metric.pointer);
    const bool told = result.is_object() && result.contains(pointer);
    row.figures.push_back(told ? std::optional(result.at(pointer).get<double>() * metric.scale) : std::nullopt);
  }
  if (result.is_object()) row.fits = result.at("memory").at("fits") == true;
  row.error = json.value("error", "");
  return row;
}

}  // namespace

const SweepMetric& sweep_metric(const std::string& name) {
  std::vector<std::string> names;
  for (const SweepMetric& one : kMetrics) {
    if (one.name == name) return one;
    names.emplace_back(one.name);
  }
  throw ConfigError({"--metric", fmt::format("unknown value \"{}\"", name), "", choices_help(name, names)});
}

std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Forecast& forecast, SweepDetail detail) {
  Json result = result_json(forecast);
  if (detail == SweepDetail::kFigures) result = figures_of(result);
  return dumped(row_json(grid, index, std::move(result)));
}

std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Diagnostic& error) {
  Json row = row_json(grid, index, nullptr);
  row["error"] = error.field.empty() ? error.problem : error.field + ": " + error.problem;
  return dumped(row);
}

std::optional<SweepRow> read_sweep_row(const SweepGrid& grid, const std::string& line) {
  try {
    return row_of_json(grid, Json::parse(line));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string sweep_json_begin(const SweepGrid& grid) {
  Json json = {{"schema", "flopcast.sweep/1"}, {"keys", Json::array()}};
  for (const SweepAxis& axis : grid.axes()) json["keys"].push_back(axis.key);
  std::string text = dumped(json, 2);
  text.resize(text.size() - std::string_view("\n}").size());
  return text + ",\n  \"rows\": [";
}

std::string sweep_json_row(const std::string& row, bool first) {
  std::string text = first ? "\n    " : ",\n    ";
  for (const char c : dumped(Json::parse(row), 2)) {
    text += c;
    if (c == '\n') text += "    ";  // a newline inside a string is escaped as \n
  }
  return text;
}

std::string sweep_json_end() {
  return "\n  ]\n}\n";
}

Table sweep_table(const SweepGrid& grid, const std::vector<SweepRow>& rows, SweepColumns columns) {
  const std::size_t shown = std::size(kMetrics) - (columns == SweepColumns::kStep ? kRunMetrics : 0);
  Table table;
  for (const SweepAxis& axis : grid.axes()) table.columns.push_back(text_column(axis.key));
  for (std::size_t metric = 0; metric < shown; ++metric) {
    table.columns.push_back(number_column(kMetrics[metric].name, kMetrics[metric].name));
  }
  table.columns.push_back(text_column("fits"));
  table.columns.push_back(text_column("error"));
  for (const SweepRow& row : rows) {
    std::vector<std::string> cells = row.values;
    for (std::size_t metric = 0; metric < shown; ++metric) {
      const std::optional<double>& figure = row.figures[metric];
      cells.push_back(figure ? fmt::format("{:.6g}", *figure) : std::string());
    }
    cells.emplace_back(!row.fits ? "" : *row.fits ? "yes" : "no");
    cells.push_back(row.error);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

HeatMap sweep_map(const SweepGrid& grid, const std::vector<SweepRow>& rows, const SweepMetric& metric) {
  HeatMap map;
  const auto short_key = [&grid](std::size_t axis) {
    const std::string& key = grid.axes()[axis].key;
    return key.substr(key.rfind('.') + 1);
  };
  map.value_name = metric.words;
  map.row_title = short_key(0);
  map.column_title = short_key(1);
  map.title = fmt::format("{} by {} and {}", metric.words, map.row_title, map.column_title);
  map.rows = grid.axes()[0].values;
  map.columns = grid.axes()[1].values;
  map.low_is_good = metric.low_is_good;
  const auto place = static_cast<std::size_t>(&metric - kMetrics);
  bool any = false;
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    map.cells.emplace_back();
    for (std::size_t column = 0; column < map.columns.size(); ++column) {
      const SweepRow& answer = rows[row * map.columns.size() + column];
      HeatMap::Cell cell = {answer.figures[place], answer.error};
      cell.fits = answer.fits.value_or(false);
      if (cell.value && !cell.fits) cell.note = "does not fit";
      any = any || cell.value;
      map.cells.back().push_back(std::move(cell));
    }
  }
  if (!any) {
    throw ConfigError({"--svg", fmt::format("no combination has a value for {}", metric.name), "",
                       std::string(metric.name) == "days" ? "days need --tokens" : "see the table for the reasons"});
  }
  return map;
}

namespace {

using Json = nlohmann::ordered_json;

double total_of(const PartitionAnswer& answer) {
  double total = 0.0;
  for (const PartitionStage& stage : answer.stages) total += stage.time;
  return total;
}

double share_of(const PartitionAnswer& answer, const PartitionStage& stage) {
  const double total = total_of(answer);
  return total > 0 ? stage.time / total : 0.0;
}

}  // namespace

std::string write_partition(const PartitionAnswer& answer) {
  Json stages = Json::array();
  for (std::size_t index = 0; index < answer.stages.size(); ++index) {
    const PartitionStage& stage = answer.stages[index];
    stages.push_back({{"stage", index},
                      {"layers", stage.layers},
                      {"time", stage.time},
                      {"share", share_of(answer, stage)},
                      {"replicas", stage.replicas}});
    if (stage.rank) stages.back()["rank"] = *stage.rank;
    if (!stage.last_layers.empty()) stages.back()["last_layers"] = stage.last_layers;
  }
  Json json = {{"schema", "flopcast.partition/1"},
               {"method", answer.method},
               {"time_unit", answer.in_seconds ? "s" : "as given"},
               {"stages", stages},
               {"bottleneck", answer.bottleneck},
               {"work", answer.work}};
  if (answer.bottleneck > 0) json["throughput"] = 1.0 / answer.bottleneck;
  if (answer.stage_layers) json["stage_layers"] = *answer.stage_layers;
  if (answer.step_s) json["step_s"] = *answer.step_s;
  if (answer.uniform_step_s) json["uniform_step_s"] = *answer.uniform_step_s;
  json["notes"] = answer.notes;
  return dumped(json, 2);
}

Table partition_table(const PartitionAnswer& answer) {
  const bool has_ranks = !answer.stages.empty() && answer.stages.front().rank.has_value();
  const bool has_cuts = !answer.stages.empty() && !answer.stages.front().last_layers.empty();
  Table table = {.title = answer.title, .columns = {number_column("stage")}};
  if (has_ranks) table.columns.push_back(number_column("rank"));
  table.columns.push_back(number_column("layers"));
  table.columns.push_back(answer.in_seconds ? number_column("time ms") : number_column("time"));
  table.columns.push_back(number_column("share %"));
  table.columns.push_back(number_column("replicas"));
  if (has_cuts) table.columns.push_back(text_column("ends behind", "last_layers"));
  for (std::size_t index = 0; index < answer.stages.size(); ++index) {
    const PartitionStage& stage = answer.stages[index];
    std::vector<std::string> row = {fmt::format("{}", index)};
    if (has_ranks) row.push_back(fmt::format("{}", *stage.rank));
    row.push_back(fmt::format("{}", stage.layers));
    row.push_back(answer.in_seconds ? fmt::format("{:.3f}", stage.time * 1e3) : fmt::format("{:.10g}", stage.time));
    row.push_back(fmt::format("{:.1f}", share_of(answer, stage) * 100.0));
    row.push_back(fmt::format("{}", stage.replicas));
    if (has_cuts) row.push_back(stage.last_layers);
    table.rows.push_back(std::move(row));
  }
  if (answer.bottleneck > 0) {
    table.notes.push_back(answer.in_seconds ? fmt::format("a {} every {:.3f} ms: {:.4g} per second", answer.work,
                                                          answer.bottleneck * 1e3, 1.0 / answer.bottleneck)
                                            : fmt::format("a {} every {:.10g}", answer.work, answer.bottleneck));
  }
  if (answer.step_s && answer.uniform_step_s) {
    table.notes.push_back(fmt::format("step time {:.4g} s, {:.4g} s with the uniform split ({:+.1f} %)", *answer.step_s,
                                      *answer.uniform_step_s, (*answer.step_s / *answer.uniform_step_s - 1.0) * 100.0));
  }
  if (answer.stage_layers) {
    table.notes.push_back(fmt::format("--layout.stage_layers {}", fmt::join(*answer.stage_layers, ",")));
  }
  table.notes.insert(table.notes.end(), answer.notes.begin(), answer.notes.end());
  return table;
}

}  // namespace flopcast
