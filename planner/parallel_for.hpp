#pragma once

#include <cstddef>
#include <functional>

namespace flopcast {

/// Runs body(0) … body(count - 1), in any order and on any number of threads; returns when all are done, and throws
/// what the first failing index threw. The core starts no threads; the caller hands in how.
using ParallelFor = std::function<void(std::size_t count, const std::function<void(std::size_t index)>& body)>;

/// One after the other.
inline void serial_for(std::size_t count, const std::function<void(std::size_t index)>& body) {
  for (std::size_t index = 0; index < count; ++index) body(index);
}

}  // namespace flopcast
