#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "cli/commands.hpp"
#include "cli/options/figure_options.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "planner/shared/crew.hpp"
#include "planner/shared/threads.hpp"
#include "planner/sweep/grid.hpp"
#include "planner/tables/sweep_tables.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/heat_map.hpp"
#include "sim/run/run_answer.hpp"

namespace flopcast {

namespace {

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

std::string row_of(const JobOptions& job, const SweepGrid& grid, std::size_t index) {
  std::vector<FlagValue> flags;
  const std::vector<std::string> texts = grid.values(index);
  for (std::size_t axis = 0; axis < texts.size(); ++axis) {
    flags.push_back({&key_named(grid.axes()[axis].key, "--vary"), "--vary", texts[axis]});
  }
  try {
    LoadedJob loaded = job.load_with(flags);
    if (leaves_over_another_dp(job, grid)) loaded.leave_dp_over();
    Forecast answer = forecast(JobOptions::read(loaded), read_file);
    add_run(answer, WithOptions::kNo);
    return write_sweep_row(grid, index, answer);
  } catch (const ConfigError& error) {
    return write_sweep_row(grid, index, error.diagnostic());
  }
}

// What --svg and --html draw, known before anything is computed.
const SweepMetric* metric_of(const SweepGrid& grid, bool maps, const std::optional<std::string>& name) {
  if (!maps) {
    if (name) throw ConfigError({"--metric", "is of the heat map", "", "give --svg FILE"});
    return nullptr;
  }
  if (grid.axes().size() != 2) {
    throw ConfigError(
        {"--svg", fmt::format("a heat map has two keys, not {}", grid.axes().size()), "", "give --vary twice"});
  }
  return &sweep_metric(name.value_or("step_s"));
}

// Nothing when another process writes the answer.
std::optional<std::vector<std::string>> run_grid(const JobOptions& job, const SweepGrid& grid, PartialRows* file,
                                                 const Crew& crew, int threads, const Streams& streams) {
  const ParallelFor parallel_for = threaded_for(threads);
  if (file == nullptr) {
    std::vector<std::string> rows(grid.size());
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
  work.is_row = [&grid](const std::string& row) { return read_sweep_row(grid, row).has_value(); };
  work.begins = [&progress](std::size_t missing) { progress.begin(missing); };
  work.compute = [&](std::size_t index) {
    std::string row = row_of(job, grid, index);
    progress.step();
    return row;
  };
  return answer_together(work, *file, crew, parallel_for, static_cast<std::size_t>(std::max(1, threads)));
}

// Every row, and the map where there are two keys.
void write_sweep_page(const PageOption& page, const SweepGrid& grid, const std::vector<std::string>& rows,
                      const SweepMetric* drawn, const Job& job) {
  PageParts parts;
  if (drawn != nullptr) {
    const HeatMap map = sweep_map(grid, rows, *drawn);
    parts.figures.push_back({map.value_name + " of each combination", write_heat_map_svg(map)});
  }
  parts.tables.push_back(sweep_table(grid, rows));
  std::vector<std::string> keys;
  for (const SweepAxis& axis : grid.axes()) keys.push_back(axis.key);
  page.write(fmt::format("Sweep: {} on {}", job.model.name, job.cluster.name),
             fmt::format("varied: {}; what stays:\n{}", fmt::join(keys, ", "), describe_job(job)), "", parts);
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
  FigureOptions figure;
  PageOption page;
  std::optional<std::string> metric;
  std::optional<int> threads;
  job.add_to(command_line);
  command_line.begin_group("Sweep");
  command_line.add_option("--vary", vary, "KEY=A,B,…",
                          "a key of the job and its values (A;B;… where they hold commas); may be given again");
  figure.add_to(command_line, "heat map of two keys");
  page.add_to(command_line);
  command_line.add_option("--metric", metric, "NAME", "of the heat map (default step_s)");
  command_line.add_option("--threads", threads, "N", "threads (default: one for each core)");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  if (job.show_config(output)) return 0;
  const Format format = output.format_of_file();
  const SweepGrid grid = read_grid(vary);
  const int wanted = thread_count(threads, grid.size());
  figure.check();
  const bool maps = figure.file() || (page.wanted() && grid.axes().size() == 2);
  const SweepMetric* const drawn = metric_of(grid, maps, metric);
  if (output.file()) require_writable(*output.file());
  if (page.wanted()) require_writable(*page.file());

  const std::unique_ptr<PartialRows> file = rows_beside(output.file(), job.load().root, "vary", vary, crew);
  const std::optional<std::vector<std::string>> answer =
      run_grid(job, grid, file.get(), crew, wanted > 0 || !crew.shares ? wanted : 1, streams);
  if (!answer) return 0;
  const std::vector<std::string>& rows = *answer;
  output.write({.tables = [&] { return std::vector<Table>{sweep_table(grid, rows)}; },
                .json = [&] { return write_sweep(grid, rows); }},
               format);
  if (file) file->remove();
  if (figure.file()) figure.write(write_heat_map_svg(sweep_map(grid, rows, *drawn), figure.style()));
  if (page.wanted()) write_sweep_page(page, grid, rows, drawn, JobOptions::read(job.load()));
  return 0;
}

}  // namespace flopcast
