#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "cli/commands.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "planner/shared/crew.hpp"
#include "planner/shared/threads.hpp"
#include "planner/sweep/grid.hpp"
#include "reports/svg/heat_map.hpp"
#include "sim/files/result_json.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

SweepAxis read_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) {
    throw ConfigError(
        {"--vary", fmt::format("\"{}\" names no values", text), "", "expected KEY=A,B,…, such as pp=1,2,4"});
  }
  SweepAxis axis;
  axis.key = std::string(key_named(text.substr(0, equals), "--vary").field);
  // The values of a list hold commas themselves.
  const char separator = text.find(';', equals) == std::string::npos ? ',' : ';';
  axis.values = split(std::string_view(text).substr(equals + 1), separator);
  if (std::find(axis.values.begin(), axis.values.end(), "") != axis.values.end()) {
    throw ConfigError({"--vary", fmt::format("an empty value in \"{}\"", text), "", ""});
  }
  return axis;
}

SweepGrid read_grid(const std::vector<std::string>& vary) {
  std::vector<SweepAxis> axes;
  for (const std::string& text : vary) {
    axes.push_back(read_axis(text));
    const auto twice = [&axes](const SweepAxis& axis) { return axis.key == axes.back().key; };
    if (std::count_if(axes.begin(), axes.end(), twice) > 1) {
      throw ConfigError({"--vary", fmt::format("{} varies twice", axes.back().key), "", "give all its values at once"});
    }
  }
  if (axes.empty()) throw ConfigError({"--vary", "is required", "", "such as --vary pp=1,2,4 --vary mbs=1,2"});
  SweepGrid grid(std::move(axes));
  constexpr std::size_t kMostRows = 1'000'000;
  if (grid.size() > kMostRows)
    throw ConfigError({"--vary", fmt::format("{} combinations", grid.size()), "", "at most 1,000,000"});
  return grid;
}

// Another tp, cp, pp or number of GPUs leaves over another dp than a plan's file says, unless flags say which.
bool leaves_over_another_dp(const JobOptions& job, const SweepGrid& grid) {
  bool changes = false;
  for (const SweepAxis& axis : grid.axes()) {
    if (axis.key == "layout.dp") return false;
    changes = changes || axis.key == "layout.tp" || axis.key == "layout.cp" || axis.key == "layout.pp" ||
              axis.key.rfind("cluster", 0) == 0;
  }
  return changes && !job.flag("layout.dp");
}

// A combination that makes no job is a row too, with the complaint instead of a result.
Json row_of(const JobOptions& job, const SweepGrid& grid, std::size_t index) {
  std::vector<FlagValue> flags;
  Json values = Json::object();
  const std::vector<std::string> texts = grid.values(index);
  for (std::size_t axis = 0; axis < texts.size(); ++axis) {
    flags.push_back({&key_named(grid.axes()[axis].key, "--vary"), "--vary", texts[axis]});
    values[grid.axes()[axis].key] = texts[axis];
  }
  Json row = {{"values", std::move(values)}};
  try {
    LoadedJob loaded = job.load_with(flags);
    if (leaves_over_another_dp(job, grid) && loaded.root.contains("layout")) loaded.root["layout"].erase("dp");
    row["result"] = result_json(forecast(JobOptions::read(loaded), read_file));
  } catch (const ConfigError& error) {
    const Diagnostic& complaint = error.diagnostic();
    row["result"] = nullptr;
    row["error"] = complaint.field.empty() ? complaint.problem : complaint.field + ": " + complaint.problem;
  }
  return row;
}

struct Metric {
  const char* name;
  const char* pointer;
  double scale;
  bool low_is_good;
};
constexpr std::array<Metric, 7> kMetrics = {{{"step_s", "/iteration/time_s", 1.0, true},
                                             {"tokens_per_s", "/iteration/tokens_per_s", 1.0, false},
                                             {"mfu_percent", "/iteration/mfu", 100.0, false},
                                             {"bubble_percent", "/bubble/fraction", 100.0, true},
                                             {"exposed_percent", "/communication/exposed_fraction", 100.0, true},
                                             {"peak_gib", "/memory/peak_gib", 1.0, true},
                                             {"days", "/training/days", 1.0, true}}};

std::optional<double> value_of(const Json& row, const Metric& metric) {
  const Json::json_pointer pointer(metric.pointer);
  const Json& result = row.at("result");
  if (!result.is_object() || !result.contains(pointer)) return std::nullopt;
  return result.at(pointer).get<double>() * metric.scale;
}

bool fits(const Json& row) {
  return row.at("result").is_object() && row.at("result").at("memory").at("fits") == true;
}

Table table_of(const SweepGrid& grid, const std::vector<Json>& rows) {
  Table table;
  for (const SweepAxis& axis : grid.axes()) table.columns.push_back(text_column(axis.key));
  for (const Metric& metric : kMetrics) table.columns.push_back(number_column(metric.name, metric.name));
  table.columns.push_back(text_column("fits"));
  table.columns.push_back(text_column("error"));
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const SweepAxis& axis : grid.axes()) cells.push_back(row.at("values").at(axis.key).get<std::string>());
    for (const Metric& metric : kMetrics) {
      const std::optional<double> value = value_of(row, metric);
      cells.push_back(value ? fmt::format("{:.6g}", *value) : std::string());
    }
    const bool answered = row.at("result").is_object();
    cells.emplace_back(!answered ? "" : fits(row) ? "yes" : "no");
    cells.push_back(row.value("error", ""));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// What --svg draws, known before anything is computed.
std::optional<Metric> metric_of(const SweepGrid& grid, const std::optional<std::string>& svg,
                                const std::optional<std::string>& name) {
  if (!svg) {
    if (name) throw ConfigError({"--metric", "is of the heat map", "", "give --svg FILE"});
    return std::nullopt;
  }
  if (grid.axes().size() != 2) {
    throw ConfigError(
        {"--svg", fmt::format("a heat map has two keys, not {}", grid.axes().size()), "", "give --vary twice"});
  }
  const std::string wanted = name.value_or("step_s");
  std::vector<std::string> names;
  for (const Metric& one : kMetrics) {
    if (one.name == wanted) return one;
    names.emplace_back(one.name);
  }
  throw ConfigError({"--metric", fmt::format("unknown value \"{}\"", wanted), "", choices_help(wanted, names)});
}

HeatMap heat_map_of(const SweepGrid& grid, const std::vector<Json>& rows, const Metric& metric) {
  HeatMap map;
  map.title = map.value_name = metric.name;
  map.row_title = grid.axes()[0].key;
  map.column_title = grid.axes()[1].key;
  map.rows = grid.axes()[0].values;
  map.columns = grid.axes()[1].values;
  map.low_is_good = metric.low_is_good;
  bool any = false;
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    map.cells.emplace_back();
    for (std::size_t column = 0; column < map.columns.size(); ++column) {
      const Json& answer = rows[row * map.columns.size() + column];
      HeatMap::Cell cell = {value_of(answer, metric), answer.value("error", "")};
      cell.fits = fits(answer);
      if (cell.value && !cell.fits) cell.note = "does not fit";
      any = any || cell.value;
      map.cells.back().push_back(std::move(cell));
    }
  }
  if (!any) {
    throw ConfigError({"--svg", fmt::format("no combination has a value of {}", metric.name), "",
                       std::string(metric.name) == "days" ? "days need --tokens" : "the table says why"});
  }
  return map;
}

// Whether a row of a file can be answered with.
bool is_row(const SweepGrid& grid, const Json& row) {
  try {
    table_of(grid, {row});
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

// Nothing when another process writes the answer.
std::optional<std::vector<Json>> run_grid(const JobOptions& job, const SweepGrid& grid, PartialRows* file,
                                          const Crew& crew, int threads, const Streams& streams) {
  const ParallelFor parallel_for = threaded_for(threads);
  if (file == nullptr) {
    std::vector<Json> rows(grid.size());
    Progress progress(streams, true);
    progress.begin(rows.size());
    parallel_for(rows.size(), [&](std::size_t index) {
      rows[index] = row_of(job, grid, index);
      progress.step();
    });
    return rows;
  }
  Progress progress(streams, !crew.shares);
  SharedWork work;
  work.parts = grid.size();
  work.is_row = [&grid](const Json& row) { return is_row(grid, row); };
  work.begins = [&progress](std::size_t missing) { progress.begin(missing); };
  work.compute = [&](std::size_t index) {
    Json row = row_of(job, grid, index);
    progress.step();
    return row;
  };
  return answer_together(work, *file, crew, parallel_for, static_cast<std::size_t>(std::max(1, threads)));
}

Json sweep_json(const SweepGrid& grid, const std::vector<Json>& rows) {
  Json keys = Json::array();
  for (const SweepAxis& axis : grid.axes()) keys.push_back(axis.key);
  return {{"schema", "flopcast.sweep/1"}, {"keys", std::move(keys)}, {"rows", rows}};
}

}  // namespace

int run_sweep(const Arguments& arguments, const Streams& streams) {
  return run_sweep_among(arguments, Crew(), streams);
}

int run_sweep_among(const Arguments& arguments, const Crew& crew, const Streams& streams) {
  CommandLine command_line(
      streams, "sweep", "flopcast sweep [JOB] --vary KEY=A,B,… [options]",
      "A forecast for every combination of values. With -o FILE an interrupted sweep goes on where it "
      "stopped: finished rows are kept in FILE.partial.",
      {"flopcast sweep job.json --vary pp=1,2,4 --vary mbs=1,2,4 --format csv -o sweep.csv",
       "flopcast sweep job.json --vary tp=1,2,4,8 --vary cluster.nic_bandwidth=100Gbit/s,400Gbit/s --svg map.svg"});
  JobOptions job;
  OutputOptions output;
  std::vector<std::string> vary;
  std::optional<std::string> svg;
  std::optional<std::string> metric;
  std::optional<int> threads;
  job.add_to(command_line);
  command_line.begin_group("Sweep");
  command_line.add_option("--vary", vary, "KEY=A,B,…",
                          "a key of the job and its values (A;B;… where they hold commas); may be given again");
  command_line.add_option("--svg", svg, "FILE", "heat map of two keys");
  command_line.add_option("--metric", metric, "NAME", "of the heat map (default step_s)");
  command_line.add_option("--threads", threads, "N", "threads (default: one for each core)");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  if (job.show_config(output)) return 0;
  const Format format = output.format_of_file();
  const SweepGrid grid = read_grid(vary);
  const int wanted = thread_count(threads, grid.size());
  const std::optional<Metric> drawn = metric_of(grid, svg, metric);
  if (output.file()) require_writable(*output.file());
  if (svg) require_writable(*svg);

  const Json question = {{"job", job.load().root}, {"vary", vary}};
  const std::unique_ptr<PartialRows> file = rows_beside(output.file(), question, crew);
  const std::optional<std::vector<Json>> answer =
      run_grid(job, grid, file.get(), crew, wanted > 0 || !crew.shares ? wanted : 1, streams);
  if (!answer) return 0;
  const std::vector<Json>& rows = *answer;
  output.write({.tables = [&] { return std::vector<Table>{table_of(grid, rows)}; },
                .json = [&] { return sweep_json(grid, rows); }},
               format);
  if (file) file->remove();
  if (drawn) write_file(*svg, write_heat_map_svg(heat_map_of(grid, rows, *drawn)));
  return 0;
}

}  // namespace flopcast
