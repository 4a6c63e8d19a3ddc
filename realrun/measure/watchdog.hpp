#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace flopcast {

/// Ends what a library never returns from: while something is guarded for longer than it may take, `bark` is called
/// once, in a thread of its own. No guard inside another.
class Watchdog {
 public:
  using Bark = std::function<void(const std::string& what, std::chrono::milliseconds limit)>;
  explicit Watchdog(Bark bark);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  Watchdog(Watchdog&&) = delete;
  Watchdog& operator=(Watchdog&&) = delete;
  ~Watchdog();

  /// Guards until it is gone.
  class Guard {
   public:
    Guard(Watchdog& dog, std::string what, std::chrono::milliseconds limit);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    Guard(Guard&&) = delete;
    Guard& operator=(Guard&&) = delete;
    ~Guard();

   private:
    Watchdog& dog_;
  };

 private:
  void watch();

  Bark bark_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  std::chrono::milliseconds limit_{0};
  std::chrono::steady_clock::time_point deadline_;
  bool guarding_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace flopcast
