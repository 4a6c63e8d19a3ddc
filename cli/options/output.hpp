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

/// --format and -o.
class OutputOptions {
 public:
  void add_to(CommandLine& command_line, const OutputForm& form);
  Format format() const;
  bool has_format() const { return format_.has_value(); }
  /// The format of --format, or the one that matches the ending of -o's file: .json, .csv or .md; otherwise a table.
  Format format_of_file() const;
  const std::optional<std::string>& file() const { return file_; }
  /// Writes to -o's file or standard output.
  void write(const std::string& text) const;
  /// Same as write(), for answers too large for memory.
  std::unique_ptr<OutputPieces> pieces() const;
  /// Style of tables for the place where they are written.
  TableStyle style() const;

 private:
  Streams streams_;
  std::optional<std::string> format_;
  std::optional<std::string> file_;
};

/// --color, --ascii, --width of drawings; defaults come from the terminal.
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

}  // namespace flopcast
