#include "cli/options/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "planner/tables/tables.hpp"
#include "reports/html/page.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/timeline/writers.hpp"

namespace flopcast {

std::string listed_formats() {
  const std::vector<std::string> names = format_names();
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

void OutputOptions::add_to(CommandLine& command_line, const std::string& formats) {
  streams_ = command_line.streams();
  command_line.begin_group("Output");
  command_line.add_option("--format", format_, "FORMAT", formats.empty() ? listed_formats() : formats);
  command_line.add_output("-o,--output", file_, "write there instead of to standard output", Dash::kIsStandardOutput);
}

Format OutputOptions::format() const {
  return parse_format(lower_case(format_.value_or("table")));
}

Format OutputOptions::format_of_file() const {
  if (format_ || !file_) return format();
  for (const FormatInfo& info : formats()) {
    if (!info.ending.empty() && file_->size() > info.ending.size() && file_->ends_with(info.ending)) return info.format;
  }
  return Format::kTable;
}

TableStyle OutputOptions::style() const {
  return file_ ? TableStyle{} : table_style(streams_);
}

std::unique_ptr<OutputPieces> OutputOptions::pieces() const {
  return std::make_unique<OutputPieces>(streams_, file_.value_or(""));
}

void OutputOptions::write(const std::string& text) const {
  if (file_ && file_->empty()) throw ConfigError({"--output", "the file's name is empty", "", "give a file"});
  write_output(streams_, file_.value_or(""), text);
}

void OutputOptions::write(const std::vector<Table>& tables) const {
  write(tables, format());
}

void OutputOptions::write(const std::vector<Table>& tables, Format format) const {
  std::string text;
  for (const Table& table : tables) text += (text.empty() ? "" : "\n") + write_table(table, format, style());
  write(text);
}

void OutputOptions::write(const Answer& answer, Format format) const {
  const Shows shown = shown_by(format);
  if (shown == Shows::kValues && answer.json) {
    write(answer.json());
  } else if (shown == Shows::kRows && answer.rows) {
    write({answer.rows()}, format);
  } else {
    write(answer.tables(), format);
  }
}

void DrawingOptions::add_to(CommandLine& command_line) {
  streams_ = command_line.streams();
  command_line.add_option("--color", color_, "WHEN", "auto (a terminal without NO_COLOR), always or never");
  command_line.add_option("--width", width_, "N", "columns of the drawing");
  command_line.add_flag("--ascii", ascii_, "draw with ASCII alone");
}

Terminal DrawingOptions::terminal() const {
  Terminal terminal = inspect_terminal(streams_);
  const std::size_t color = choice_of("--color", color_.value_or("auto"), {"auto", "always", "never"});
  if (color != 0) terminal.color = color == 1;
  if (ascii_) terminal.ascii = true;
  constexpr int kNarrowest = 20;
  constexpr int kWidest = 10'000;
  if (width_ && (*width_ < kNarrowest || *width_ > kWidest)) {
    throw ConfigError({"--width", fmt::format("{} is out of range", *width_), "",
                       fmt::format("expected {} to {}", kNarrowest, kWidest)});
  }
  if (width_) terminal.width = *width_;
  return terminal;
}

void PageOption::add_to(CommandLine& command_line) {
  command_line_ = &command_line;
  command_line.add_output("--html", file_, "write a report to look at and to send: one file, loads nothing");
}

void PageOption::write(const std::string& title, const std::string& question, const std::string& answer,
                       const PageParts& parts,
                       const std::vector<std::pair<std::string, const Forecast*>>& forecasts) const {
  PageInfo info;
  info.title = title;
  info.tool = tool_text();
  info.question = question;
  info.answer = answer;
  info.command = command_line_->typed();
  write_file(*file_, forecasts_page(info, forecasts, parts));
}

SvgOptions TimelineFiles::svg_options() const {
  SvgOptions options;
  static_cast<FigureStyle&>(options) = figure_.style();
  return options;
}

void TimelineFiles::add_to(CommandLine& command_line) {
  figure_.add_to(command_line, "write the timeline as a figure");
  command_line.add_output("--html", html_, "write a report to look at: one file, loads nothing");
  command_line.add_output("--trace", trace_, "write the timeline as a trace for ui.perfetto.dev");
}

void TimelineFiles::check(bool drawn) const {
  figure_.check(drawn);
}

void TimelineFiles::write(const RunComparison& run) const {
  const Timeline& forecast = run.forecast.drawn;
  const Timeline& measured = run.measured.drawn;
  if (figure_.file()) figure_.write(write_svg(std::vector<Timeline>{forecast, measured}, svg_options()));
  if (html_) {
    write_file(*html_, run_page({"", tool_text(), ""}, run));
  }
  if (!trace_) return;
  TraceOptions options;
  options.other_data = {{"tool", tool_text()}};
  if (!run.conditions.empty()) options.other_data.push_back({"conditions", run.conditions});
  write_file(*trace_, write_chrome_trace(measured, options));
}

}  // namespace flopcast
