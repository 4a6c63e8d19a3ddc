#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/text/error.hpp"
#include "base/text/table.hpp"

namespace flopcast {

/// Where a command prints and reads: the standard streams of its program, or files and a text supplied by an in-process
/// caller.
struct Streams {
  std::FILE* out = nullptr;
  std::FILE* err = nullptr;
  const std::string* in = nullptr;  ///< null: the program's standard input
};

inline Streams standard_streams() {
  return {stdout, stderr, nullptr};
}

/// A stream into memory for in-process callers.
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

/// Capabilities of the terminal behind the output stream. Colour only on a terminal, never with NO_COLOR or TERM=dumb.
struct Terminal {
  int width = 80;
  bool color = false;
  bool ascii = false;  ///< the locale is not UTF-8
};
Terminal inspect_terminal(const Streams& streams);

/// Tables fit the terminal's width, or COLUMNS if set; otherwise their width is unlimited.
TableStyle table_style(const Streams& streams);

/// Colours "error:" red and "warning:" yellow if the error stream is a terminal that supports colour.
std::string colored_message(const Streams& streams, const std::string& text);

/// A warning or hint on the error stream.
void warn(const Streams& streams, const std::string& text);

/// A progress bar on the error stream if that is a terminal; otherwise nothing.
class Progress {
 public:
  Progress(const Streams& streams, bool shows);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends the line, even if incomplete.
  ~Progress();

  void begin(std::size_t all) { all_ = all; }
  /// Thread-safe.
  void step();

 private:
  std::FILE* stream_;
  std::size_t all_ = 0;
  bool shows_;
  std::atomic<std::size_t> done_{0};
};

/// A status line on a terminal's standard error with progress and next item; erased by the destructor.
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
