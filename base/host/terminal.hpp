#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/text/error.hpp"
#include "base/text/table.hpp"

namespace flopcast {

/// Where a command prints, and what it reads in the place of standard input: its program's standard streams, or files
/// and a text of whoever calls it in process.
struct Streams {
  std::FILE* out = nullptr;
  std::FILE* err = nullptr;
  const std::string* in = nullptr;  ///< null: the program's standard input
};

inline Streams standard_streams() {
  return {stdout, stderr, nullptr};
}

/// A stream into memory, for whoever calls commands in process.
class MemoryStream {
 public:
  MemoryStream() : file_(open_memstream(&text_, &size_)) {
    if (file_ == nullptr) throw EnvironmentError("out of memory");
  }
  MemoryStream(const MemoryStream&) = delete;
  MemoryStream& operator=(const MemoryStream&) = delete;
  MemoryStream(MemoryStream&&) = delete;
  MemoryStream& operator=(MemoryStream&&) = delete;
  ~MemoryStream() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

/// What the terminal behind the output stream can show. Colour only on a terminal, never with NO_COLOR or TERM=dumb.
struct Terminal {
  int width = 80;
  bool color = false;
  bool ascii = false;  ///< the locale is not UTF-8
};
Terminal inspect_terminal(const Streams& streams);

/// What tables are fitted to: the terminal, or COLUMNS where the environment says it; elsewhere they are as wide as
/// they are.
TableStyle table_style(const Streams& streams);

/// "error:" in red and "warning:" in yellow where the error stream is a terminal that shows colours.
std::string colored_complaint(const Streams& streams, const std::string& text);

/// A warning or hint on the error stream.
void warn(const Streams& streams, const std::string& text);

/// A bar on the error stream where that is a terminal; nothing elsewhere.
class Progress {
 public:
  Progress(const Streams& streams, bool shows);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends the line, done or not.
  ~Progress();

  void begin(std::size_t all) { all_ = all; }
  /// For several threads at once.
  void step();

 private:
  std::FILE* stream_;
  std::size_t all_ = 0;
  bool shows_;
  std::atomic<std::size_t> done_{0};
};

/// A line on a terminal's standard error that tells how far it is and what comes next, gone in the end.
class ProgressLine {
 public:
  ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  void show(std::size_t done, std::size_t all, const std::string& next) const;

 private:
  bool shows_;
};

}  // namespace flopcast
