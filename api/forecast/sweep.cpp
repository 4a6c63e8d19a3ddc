#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
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
    throw ConfigError({"--vary", fmt::format("\"{}\" has no values", text), "", "give KEY=A,B,…, such as pp=1,2,4"});
  }
  SweepAxis axis;
  axis.key = std::string(key_named(text.substr(0, equals), "--vary").field);
  // Values that are lists contain commas themselves, so they are separated by semicolons.
  const char separator = text.find(';', equals) == std::string::npos ? ',' : ';';
  axis.values = split(std::string_view(text).substr(equals + 1), separator);
  if (std::find(axis.values.begin(), axis.values.end(), "") != axis.values.end()) {
    throw ConfigError(
        {"--vary", fmt::format("\"{}\" has an empty value", text), "", "give KEY=A,B,…, such as pp=1,2,4"});
  }
  return axis;
}

SweepGrid read_grid(const std::vector<std::string>& vary) {
  std::vector<SweepAxis> axes;
  for (const std::string& text : vary) {
    axes.push_back(read_axis(text));
    const auto twice = [&axes](const SweepAxis& axis) { return axis.key == axes.back().key; };
    if (std::count_if(axes.begin(), axes.end(), twice) > 1) {
      throw ConfigError(
          {"--vary", fmt::format("{} is varied twice", axes.back().key), "", "give all its values in one --vary"});
    }
  }
  if (axes.empty())
    throw ConfigError({"--vary", "is required", "", "give one or more, such as --vary pp=1,2,4 --vary mbs=1,2"});
  SweepGrid grid(std::move(axes));
  constexpr std::size_t kMostRows = 1'000'000;
  if (grid.size() > kMostRows)
    throw ConfigError({"--vary", fmt::format("has {} combinations", grid.size()), "", "give at most 1,000,000"});
  return grid;
}

// A different tp, cp, pp or number of GPUs changes the dp of a plan's file, unless flags set it.
bool changes_dp(const JobOptions& job, const SweepGrid& grid) {
  bool changes = false;
  for (const SweepAxis& axis : grid.axes()) {
    if (axis.key == "layout.dp") return false;
    changes = changes || axis.key == "layout.tp" || axis.key == "layout.cp" || axis.key == "layout.pp" ||
              axis.key.rfind("cluster", 0) == 0;
  }
  return changes && !job.flag("layout.dp");
}

// Throws ConfigError if the combination is not a valid job.
Job job_of(const JobOptions& job, const SweepGrid& grid, std::size_t index) {
  std::vector<FlagValue> flags;
  const std::vector<std::string> texts = grid.values(index);
  for (std::size_t axis = 0; axis < texts.size(); ++axis) {
    flags.push_back({&key_named(grid.axes()[axis].key, "--vary"), "--vary", texts[axis]});
  }
  LoadedJob loaded = job.load_with(flags);
  if (changes_dp(job, grid)) loaded.clear_dp();
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

// Metric that --svg and --html draw, checked before anything is computed.
const SweepMetric* metric_of(const SweepGrid& grid, bool maps, const std::optional<std::string>& name) {
  if (!maps) {
    if (name) throw ConfigError({"--metric", "applies only to the heat map", "", "add --svg FILE"});
    return nullptr;
  }
  if (grid.axes().size() != 2) {
    throw ConfigError(
        {"--svg", fmt::format("a heat map needs two keys, not {}", grid.axes().size()), "", "give --vary twice"});
  }
  return &sweep_metric(name.value_or("step_s"));
}

// Limit for tables and maps, which are held as a whole: this number of rows takes some 100 MB.
constexpr std::size_t kMostShown = 50'000;

void require_showable(const SweepGrid& grid, const Context& context) {
  if (grid.size() <= kMostShown) return;
  const auto refuse = [&grid](const char* flag, const char* what, const char* of, const char* otherwise) {
    throw ConfigError({flag, fmt::format("a {} with {} {} is unreadable", what, grid.size(), of), "",
                       fmt::format("at most {} {}{}", kMostShown, of, otherwise)});
  };
  if (shown_by(context.format) == Shows::kPages) refuse("--format", "table", "rows", "; give --format csv or json");
  if (context.has_page) refuse("--html", "page", "rows", "; give --format csv or json");
  if (context.has_figure) refuse("--svg", "map", "cells", "");
}

// Known before the first row, because tables are written row by row.
SweepColumns columns_of(const LoadedJob& base, const SweepGrid& grid) {
  const bool varies = std::any_of(grid.axes().begin(), grid.axes().end(),
                                  [](const SweepAxis& axis) { return axis.key.rfind("failures", 0) == 0; });
  return varies || base.root.contains("failures") ? SweepColumns::kStepAndRun : SweepColumns::kStep;
}

// Takes the rows in order and writes them one by one if the format allows it.
class SweepWriter {
 public:
  SweepWriter(const SweepGrid& grid, SweepColumns columns, const Context& context, bool draws)
      : grid_(grid),
        columns_(columns),
        context_(context),
        shown_(shown_by(context.format)),
        keeps_(draws || shown_ == Shows::kPages) {}

  // False if the reader has closed the output.
  bool add(const std::string& row) {
    if (shown_ != Shows::kPages && !pieces_) begin();
    if (shown_ == Shows::kValues && !pieces_->write(sweep_json_row(row, count_ == 0))) return on_output_closed();
    const std::size_t index = count_++;
    if (shown_ == Shows::kValues && !keeps_ && answered_) return true;
    SweepRow read = read_sweep_row(grid_, row).value();
    if (read.error.empty() && !answered_) answered_ = index;
    if (first_error_.empty()) first_error_ = read.error;
    if (shown_ == Shows::kRows) {
      const std::string text = write_table(sweep_table(grid_, {read}, columns_), context_.format);
      // A table with one row; its header has been written already.
      if (!pieces_->write(std::string_view(text).substr(text.find('\n') + 1))) return on_output_closed();
    }
    if (keeps_) rows_.push_back(std::move(read));
    return true;
  }

  void finish() {
    if (!pieces_) return;
    if (shown_ == Shows::kValues) pieces_->write(sweep_json_end());
    pieces_->finish();
  }
  Table table() const { return sweep_table(grid_, rows_, columns_); }
  // All rows if something is drawn.
  const std::vector<SweepRow>& rows() const { return rows_; }
  // First combination that has a forecast. Throws NegativeAnswer if none has one.
  std::size_t answered() const {
    if (answered_) return *answered_;
    throw NegativeAnswer(fmt::format("no combination can be forecast; the first: {}", first_error_));
  }

 private:
  // A reader that stops early has seen enough, so this is not an error.
  bool on_output_closed() {
    answered_ = answered_.value_or(0);
    return false;
  }

  void begin() {
    pieces_ = context_.pieces();
    pieces_->write(shown_ == Shows::kValues ? sweep_json_begin(grid_)
                                            : write_table(sweep_table(grid_, {}, columns_), context_.format));
  }

  const SweepGrid& grid_;
  SweepColumns columns_;
  const Context& context_;
  Shows shown_;
  bool keeps_;
  std::size_t count_ = 0;
  std::optional<std::size_t> answered_;
  std::string first_error_;
  std::vector<SweepRow> rows_;
  std::unique_ptr<OutputPieces> pieces_;
};

struct SweepRun {
  const JobOptions& job;
  const SweepGrid& grid;
  SweepDetail detail;
  int threads;
  const Streams& streams;

  std::string row(std::size_t index) const { return row_of(job, grid, index, detail); }
};

// Works block by block, because rows are written in order.
void answer_alone(const SweepRun& sweep, SweepWriter& writer) {
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

// False if another process writes the answer.
bool answer_shared(const SweepRun& sweep, PartialRows& file, const Crew& crew, SweepWriter& writer) {
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

class Sweep final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    form.begin_group("Sweep");
    form.add_option("--vary", vary_, "KEY=A,B,…",
                    "key of the job and its values (A;B;… if they contain commas); repeatable");
    form.place_figure("heat map of two keys");
    form.place_page();
    form.add_option("--metric", metric_, "NAME", "metric of the heat map (default step_s)");
    form.add_option("--threads", threads_, "N", "number of threads (default: one per core)");
    form.place_output({.format_by_ending = true});
  }

  Answer ask(const Context& context) override {
    if (std::optional<Answer> config = job_.config_answer(context)) return std::move(*config);
    grid_ = read_grid(vary_);
    wanted_threads_ = thread_count(threads_, grid_.size());
    drawn_ = metric_of(grid_, context.has_figure || (context.has_page && grid_.axes().size() == 2), metric_);
    require_showable(grid_, context);
    const LoadedJob base = job_.load();
    columns_ = columns_of(base, grid_);
    writer_.emplace(grid_, columns_, context, context.has_figure || context.has_page);
    if (!run(base, context)) return {};
    Answer answer{.page = [this](PageInfo info) { return page(std::move(info)); },
                  .files_come_last = true,
                  .finish = [this] { (void)writer_->answered(); },
                  .done =
                      [this] {
                        if (file_) file_->remove();
                      }};
    if (drawn_ != nullptr) answer.figure = [this](const FigureStyle& style) { return map_svg(style); };
    // Rows and values have been printed already.
    if (shown_by(context.format) == Shows::kPages) {
      answer.tables = [this] { return std::vector<Table>{writer_->table()}; };
    }
    return answer;
  }

 private:
  // False if another process writes the answer.
  bool run(const LoadedJob& base, const Context& context) {
    const Crew alone;
    const Crew& crew = context.crew != nullptr ? *context.crew : alone;
    const bool whole = shown_by(context.format) == Shows::kValues;
    const SweepRun sweep = {job_, grid_, whole ? SweepDetail::kResult : SweepDetail::kFigures,
                            wanted_threads_ > 0 || !crew.shares ? wanted_threads_ : 1, context.streams};
    // Rows with results and rows with figures are not interchangeable.
    std::vector<std::string> question = vary_;
    if (!whole) question.emplace_back("figures");
    file_ = open_partial_rows(context.file, base.root, "vary", question, crew);
    if (!file_) {
      answer_alone(sweep, *writer_);
    } else if (!answer_shared(sweep, *file_, crew, *writer_)) {
      return false;
    }
    writer_->finish();
    return true;
  }

  std::string map_svg(const FigureStyle& style) const {
    return write_heat_map_svg(sweep_map(grid_, writer_->rows(), *drawn_), style);
  }

  // Page with every row, and with the map if there are two keys.
  std::string page(PageInfo info) const {
    PageParts parts;
    if (drawn_ != nullptr) {
      const HeatMap map = sweep_map(grid_, writer_->rows(), *drawn_);
      parts.figures.push_back({map.value_name + " of each combination", write_heat_map_svg(map)});
    }
    parts.tables.push_back(writer_->table());
    std::vector<std::string> keys;
    for (const SweepAxis& axis : grid_.axes()) keys.push_back(axis.key);
    const Job job = job_of(job_, grid_, writer_->answered());
    info.title = fmt::format("Sweep: {} on {}", job.model.name, job.cluster.name);
    info.question = fmt::format("varied: {}; fixed:\n{}", fmt::join(keys, ", "), describe_job(job));
    return forecasts_page(info, {}, parts);
  }

  JobOptions job_;
  std::vector<std::string> vary_;
  std::optional<std::string> metric_;
  std::optional<int> threads_;

  SweepGrid grid_;
  int wanted_threads_ = 0;
  const SweepMetric* drawn_ = nullptr;
  SweepColumns columns_ = SweepColumns::kStep;
  std::optional<SweepWriter> writer_;
  std::unique_ptr<PartialRows> file_;
};

}  // namespace

QuestionInfo sweep_question() {
  return {"sweep",
          "forecast every combination of values: table, CSV, heat map",
          "flopcast sweep [JOB] --vary KEY=A,B,… [options]",
          "Forecasts every combination of values. With -o FILE, an interrupted sweep continues where it "
          "stopped: finished rows are kept in FILE.partial.",
          {"flopcast sweep job.json --vary pp=1,2,4 --vary mbs=1,2,4 --format csv -o sweep.csv",
           "flopcast sweep job.json --vary tp=1,2,4,8 --vary cluster.nic_bandwidth=100Gbit/s,400Gbit/s --svg map.svg"},
          make_question<Sweep>};
}

}  // namespace flopcast
