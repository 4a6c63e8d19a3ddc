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

void OutputOptions::add_to(CommandLine& command_line, const OutputForm& form) {
  streams_ = command_line.streams();
  if (form.inputs != OutputInputs::kFormat) command_line.begin_group("Output");
  if (form.inputs != OutputInputs::kFile) {
    command_line.add_option("--format", format_, "FORMAT", form.formats.empty() ? listed_formats() : form.formats);
  }
  if (form.inputs != OutputInputs::kFormat) {
    command_line.add_output("-o,--output", file_, "output file (default: standard output)", Dash::kIsStandardOutput);
  }
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
  if (file_ && file_->empty()) throw ConfigError({"--output", "has an empty file name", "", "give a file"});
  write_output(streams_, file_.value_or(""), text);
}

void DrawingOptions::add_to(CommandLine& command_line) {
  streams_ = command_line.streams();
  command_line.add_option("--color", color_, "WHEN", "auto (a terminal without NO_COLOR), always or never");
  command_line.add_option("--width", width_, "N", "width of the drawing in columns");
  command_line.add_flag("--ascii", ascii_, "draw with ASCII characters only");
}

Terminal DrawingOptions::terminal() const {
  Terminal terminal = inspect_terminal(streams_);
  const std::size_t color = choice_of("--color", color_.value_or("auto"), {"auto", "always", "never"});
  if (color != 0) terminal.color = color == 1;
  if (ascii_) terminal.ascii = true;
  constexpr int kNarrowest = 20;
  constexpr int kWidest = 10'000;
  if (width_ && (*width_ < kNarrowest || *width_ > kWidest)) {
    throw ConfigError(
        {"--width", fmt::format("{} is out of range", *width_), "", fmt::format("give {} to {}", kNarrowest, kWidest)});
  }
  if (width_) terminal.width = *width_;
  return terminal;
}

}  // namespace flopcast
