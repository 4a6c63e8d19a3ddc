#pragma once

#include <cstdio>

namespace flopcast {

/// Where a command prints: its program's standard streams, or files of whoever calls it in process.
struct Streams {
  std::FILE* out = nullptr;
  std::FILE* err = nullptr;
};

inline Streams standard_streams() {
  return {stdout, stderr};
}

}  // namespace flopcast
