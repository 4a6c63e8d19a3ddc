#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace flopcast::realrun {

/// Looks from a thread of its own whether a counter moves. Waits of a rank have a limit, but only as long as MPI's
/// calls come back: where those of all ranks do not, nobody else would notice.
class Watchdog {
 public:
  /// Calls `bite` once when `beats` has stayed the same for `patience`, from the other thread.
  Watchdog(const std::atomic<std::uint64_t>& beats, std::chrono::milliseconds patience, std::function<void()> bite);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  Watchdog(Watchdog&&) = delete;
  Watchdog& operator=(Watchdog&&) = delete;
  ~Watchdog();

 private:
  void watch();

  const std::atomic<std::uint64_t>& beats_;
  std::chrono::milliseconds patience_;
  std::function<void()> bite_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace flopcast::realrun
