#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/options/figure_options.hpp"
#include "api/question.hpp"
#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/table.hpp"
#include "reports/html/page.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/compared_run.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// "table, markdown, csv or json"
std::string listed_formats();

/// --format and -o, which every command has.
class OutputOptions {
 public:
  /// `formats`: the help of --format; empty: all formats.
  void add_to(CommandLine& command_line, const std::string& formats = "");
  Format format() const;
  bool has_format() const { return format_.has_value(); }
  /// What --format says, or else the ending of -o's file: .json, .csv or .md; a table without either.
  Format format_of_file() const;
  const std::optional<std::string>& file() const { return file_; }
  /// To -o's file or standard output.
  void write(const std::string& text) const;
  void write(const std::vector<Table>& tables) const;
  void write(const std::vector<Table>& tables, Format format) const;
  void write(const Answer& answer, Format format) const;
  /// The same for an answer that is too large to be held.
  std::unique_ptr<OutputPieces> pieces() const;
  /// What tables are fitted to where they are written.
  TableStyle style() const;

 private:
  Streams streams_;
  std::optional<std::string> format_;
  std::optional<std::string> file_;
};

/// --color, --ascii, --width of drawings; the terminal decides what is not given.
class DrawingOptions {
 public:
  void add_to(CommandLine& command_line);
  Terminal terminal() const;

 private:
  Streams streams_;
  std::optional<std::string> color_;
  std::optional<int> width_;
  bool ascii_ = false;
};

/// --html FILE of a command whose answer is tables and figures.
class PageOption {
 public:
  void add_to(CommandLine& command_line);
  bool wanted() const { return file_.has_value(); }
  const std::optional<std::string>& file() const { return file_; }
  /// `question` and `answer` are lines of the heading; `forecasts` are shown with their timelines.
  void write(const std::string& title, const std::string& question, const std::string& answer, const PageParts& parts,
             const std::vector<std::pair<std::string, const Forecast*>>& forecasts = {}) const;

 private:
  const CommandLine* command_line_ = nullptr;
  std::optional<std::string> file_;
};

/// --svg, --html and --trace: side files that show when everything happened.
class TimelineFiles {
 public:
  void add_to(CommandLine& command_line);
  /// Throws ConfigError where the figure cannot be drawn so. `drawn`: another flag of the command draws a figure.
  void check(bool drawn = false) const;
  bool wanted() const { return figure_.file() || html_ || trace_; }
  const FigureOptions& figure() const { return figure_; }
  /// Figure and page show the forecast above the measurement over one axis, the trace the measurement.
  void write(const RunComparison& run) const;

 private:
  SvgOptions svg_options() const;

  FigureOptions figure_;
  std::optional<std::string> html_;
  std::optional<std::string> trace_;
};

}  // namespace flopcast
