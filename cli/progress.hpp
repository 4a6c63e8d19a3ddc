#pragma once

#include <atomic>
#include <cstddef>

namespace flopcast {

/// A bar on standard error where that is a terminal; nothing elsewhere.
class Progress {
 public:
  explicit Progress(bool shows);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;
  /// Ends the line, done or not.
  ~Progress();

  void begin(std::size_t all) { all_ = all; }
  /// For several threads at once.
  void step();

 private:
  std::size_t all_ = 0;
  bool shows_;
  std::atomic<std::size_t> done_{0};
};

}  // namespace flopcast
