#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "cli/command_line.hpp"
#include "cli/terminal.hpp"
#include "import/programs/launch.hpp"

namespace flopcast {

/// --format and -o, which every command has.
class OutputOptions {
 public:
  void add_to(CommandLine& command_line);
  Format format() const;
  /// What --format says, or `otherwise` when it is not given.
  Format format_or(Format otherwise) const;
  bool has_format() const { return format_.has_value(); }
  /// What --format says, or else the ending of -o's file: .json, .csv or .md; a table without either.
  Format format_of_file() const;
  const std::optional<std::string>& file() const { return file_; }
  /// To -o's file or standard output.
  void write(const std::string& text) const;
  void write(const std::vector<Table>& tables) const;
  void write(const std::vector<Table>& tables, Format format) const;

 private:
  std::optional<std::string> format_;
  std::optional<std::string> file_;
};

/// --color, --ascii, --width of drawings; the terminal decides what is not given.
class DrawingOptions {
 public:
  void add_to(CommandLine& command_line);
  Terminal terminal() const;

 private:
  std::optional<std::string> color_;
  std::optional<int> width_;
  bool ascii_ = false;
};

/// --emit PROGRAM: what another program needs to train a job as it is laid out, instead of our own answer.
class EmitOption {
 public:
  void add_to(CommandLine& command_line);
  /// Nothing when --emit is not given. Throws ConfigError on an unknown program.
  std::optional<LaunchProgram> program() const;
  /// To a file or standard output; what has to be given elsewhere as notes on standard error.
  static void write(const LaunchFile& file, const std::optional<std::string>& path);

 private:
  std::optional<std::string> program_;
};

}  // namespace flopcast
