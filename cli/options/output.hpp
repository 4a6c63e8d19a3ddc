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
  /// What --format says, or else the ending of -o's file: .json, .csv or .md; a table without either.
  Format format_of_file() const;
  const std::optional<std::string>& file() const { return file_; }
  /// To -o's file or standard output.
  void write(const std::string& text) const;
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

}  // namespace flopcast
