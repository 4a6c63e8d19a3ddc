#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/text/error.hpp"

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

}  // namespace flopcast
