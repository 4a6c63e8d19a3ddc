#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

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
#include "planner/tables/tables.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/charts.hpp"
#include "sim/run/run.hpp"

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

// Throws ConfigError where the combination is no job.
Job job_of(const JobOptions& job, const SweepGrid& grid, std::size_t index) {
  std::vector<FlagValue> flags;
  const std::vector<std::string> texts = grid.values(index);
  for (std::size_t axis = 0; axis < texts.size(); ++axis) {
    flags.push_back({&key_named(grid.axes()[axis].key, "--vary"), "--vary", texts[axis]});
  }
  LoadedJob loaded = job.load_with(flags);
  if (leaves_over_another_dp(job, grid)) loaded.leave_dp_over();
  return JobOptions::read(loaded);
}

std::string row_of(const JobOptions& job, const SweepGrid& grid, std::size_t index, SweepDetail detail) {
  try {
    Forecast answer = forecast_figures(job_of(job, grid, index), read_file);
    add_run(answer, WithOptions::kNo);
    return write_sweep_row(grid, index, answer, detail);
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

// Tables for people and maps are drawn as a whole: so many rows take some 100 MB.
constexpr std::size_t kMostShown = 50'000;

void require_showable(const SweepGrid& grid, Format format, const FigureOptions& figure, const PageOption& page) {
  if (grid.size() <= kMostShown) return;
  if (shown_by(format) == Shows::kPages) {
    throw ConfigError({"--format", fmt::format("a table of {} rows is none that can be read", grid.size()), "",
                       fmt::format("at most {} rows; give --format csv or json", kMostShown)});
  }
  if (page.wanted()) {
    throw ConfigError({"--html", fmt::format("a page of {} rows is none that can be read", grid.size()), "",
                       fmt::format("at most {} rows; give --format csv or json", kMostShown)});
  }
  if (figure.file()) {
    throw ConfigError({"--svg", fmt::format("a map of {} cells is none that can be read", grid.size()), "",
                       fmt::format("at most {} cells", kMostShown)});
  }
}

// Told before the first row, as tables are written row by row.
SweepColumns columns_of(const LoadedJob& base, const SweepGrid& grid) {
  const bool varies = std::any_of(grid.axes().begin(), grid.axes().end(),
                                  [](const SweepAxis& axis) { return axis.key.rfind("failures", 0) == 0; });
  return varies || base.root.contains("failures") ? SweepColumns::kStepAndRun : SweepColumns::kStep;
}

// Takes the rows in their order and writes them as they come, where the format lets it.
class SweepWriter {
 public:
  SweepWriter(const SweepGrid& grid, SweepColumns columns, const OutputOptions& output, Format format, bool draws)
      : grid_(grid),
        columns_(columns),
        output_(output),
        format_(format),
        shown_(shown_by(format)),
        keeps_(draws || shown_ == Shows::kPages) {}

  // False when nobody reads on.
  bool add(const std::string& row) {
    if (shown_ != Shows::kPages && !pieces_) begin();
    if (shown_ == Shows::kValues && !pieces_->write(sweep_json_row(row, count_ == 0))) return reader_left();
    const std::size_t index = count_++;
    if (shown_ == Shows::kValues && !keeps_ && answered_) return true;
    SweepRow read = read_sweep_row(grid_, row).value();
    if (read.error.empty() && !answered_) answered_ = index;
    if (first_error_.empty()) first_error_ = read.error;
    if (shown_ == Shows::kRows) {
      const std::string text = write_table(sweep_table(grid_, {read}, columns_), format_);
      // A table of one row after its header, which was written before.
      if (!pieces_->write(std::string_view(text).substr(text.find('\n') + 1))) return reader_left();
    }
    if (keeps_) rows_.push_back(std::move(read));
    return true;
  }

  void finish() {
    if (shown_ == Shows::kPages) {
      output_.write(std::vector<Table>{sweep_table(grid_, rows_, columns_)}, format_);
    } else if (pieces_) {
      if (shown_ == Shows::kValues) pieces_->write(sweep_json_end());
      pieces_->finish();
    }
  }
  // All of them, where something is drawn.
  const std::vector<SweepRow>& rows() const { return rows_; }
  // The first combination that has a forecast, where all were seen. Throws NegativeAnswer where none has one.
  std::size_t answered() const {
    if (answered_) return *answered_;
    throw NegativeAnswer(fmt::format("no combination can be forecast; the first: {}", first_error_));
  }

 private:
  // Who reads no further has seen what they wanted.
  bool reader_left() {
    answered_ = answered_.value_or(0);
    return false;
  }

  void begin() {
    pieces_ = output_.pieces();
    pieces_->write(shown_ == Shows::kValues ? sweep_json_begin(grid_)
                                            : write_table(sweep_table(grid_, {}, columns_), format_));
  }

  const SweepGrid& grid_;
  SweepColumns columns_;
  const OutputOptions& output_;
  Format format_;
  Shows shown_;
  bool keeps_;
  std::size_t count_ = 0;
  std::optional<std::size_t> answered_;
  std::string first_error_;
  std::vector<SweepRow> rows_;
  std::unique_ptr<OutputPieces> pieces_;
};

struct Sweep {
  const JobOptions& job;
  const SweepGrid& grid;
  SweepDetail detail;
  int threads;
  const Streams& streams;

  std::string row(std::size_t index) const { return row_of(job, grid, index, detail); }
};

// Block by block: rows wait for those before them.
void answer_alone(const Sweep& sweep, SweepWriter& writer) {
  constexpr std::size_t kBlock = 2'048;
  const ParallelFor parallel_for = threaded_for(sweep.threads);
  Progress progress(sweep.streams, true);
  progress.begin(sweep.grid.size());
  std::vector<std::string> rows;
  for (std::size_t begin = 0; begin < sweep.grid.size(); begin += kBlock) {
    rows.assign(std::min(kBlock, sweep.grid.size() - begin), "");
    parallel_for(rows.size(), [&](std::size_t place) {
      rows[place] = sweep.row(begin + place);
      progress.step();
    });
    for (const std::string& row : rows) {
      if (!writer.add(row)) return;
    }
  }
}

// False when another process writes the answer.
bool answer_beside(const Sweep& sweep, PartialRows& file, const Crew& crew, SweepWriter& writer) {
  Progress progress(sweep.streams, !crew.shares);
  SharedWork work;
  work.parts = sweep.grid.size();
  work.is_row = [&sweep](const std::string& row) { return read_sweep_row(sweep.grid, row).has_value(); };
  work.begins = [&progress](std::size_t missing) { progress.begin(missing); };
  work.compute = [&](std::size_t index) {
    std::string row = sweep.row(index);
    progress.step();
    return row;
  };
  const std::optional<std::size_t> parts = answer_together(work, file, crew, threaded_for(sweep.threads),
                                                           static_cast<std::size_t>(std::max(1, sweep.threads)));
  if (!parts) return false;
  for (std::size_t part = 0; part < *parts; ++part) {
    if (!writer.add(answered_row(work, file, part))) break;
  }
  return true;
}

// Every row, and the map where there are two keys.
void write_sweep_page(const PageOption& page, const SweepGrid& grid, const std::vector<SweepRow>& rows,
                      SweepColumns columns, const SweepMetric* drawn, const Job& job) {
  PageParts parts;
  if (drawn != nullptr) {
    const HeatMap map = sweep_map(grid, rows, *drawn);
    parts.figures.push_back({map.value_name + " of each combination", write_heat_map_svg(map)});
  }
  parts.tables.push_back(sweep_table(grid, rows, columns));
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

  require_showable(grid, format, figure, page);

  const Sweep sweep = {job, grid, shown_by(format) == Shows::kValues ? SweepDetail::kResult : SweepDetail::kFigures,
                       wanted > 0 || !crew.shares ? wanted : 1, streams};
  // Rows of one detail are no answer of the other.
  std::vector<std::string> question = vary;
  if (sweep.detail == SweepDetail::kFigures) question.emplace_back("figures");
  const LoadedJob base = job.load();
  const std::unique_ptr<PartialRows> file = rows_beside(output.file(), base.root, "vary", question, crew);
  const SweepColumns columns = columns_of(base, grid);
  SweepWriter writer(grid, columns, output, format, drawn != nullptr || page.wanted());
  if (!file) {
    answer_alone(sweep, writer);
  } else if (!answer_beside(sweep, *file, crew, writer)) {
    return 0;
  }
  writer.finish();
  if (file) file->remove();
  (void)writer.answered();
  if (figure.file()) figure.write(write_heat_map_svg(sweep_map(grid, writer.rows(), *drawn), figure.style()));
  if (page.wanted()) write_sweep_page(page, grid, writer.rows(), columns, drawn, job_of(job, grid, writer.answered()));
  return 0;
}

}  // namespace flopcast
