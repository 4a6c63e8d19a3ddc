#pragma once

#include <cstdio>
#include <string>

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

}  // namespace flopcast
