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
class CallWatchdog {
 public:
  using Bark = std::function<void(const std::string& what, std::chrono::milliseconds limit)>;
  explicit CallWatchdog(Bark bark);
  CallWatchdog(const CallWatchdog&) = delete;
  CallWatchdog& operator=(const CallWatchdog&) = delete;
  CallWatchdog(CallWatchdog&&) = delete;
  CallWatchdog& operator=(CallWatchdog&&) = delete;
  ~CallWatchdog();

  /// Guards until it is gone.
  class Guard {
   public:
    Guard(CallWatchdog& dog, std::string what, std::chrono::milliseconds limit);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    Guard(Guard&&) = delete;
    Guard& operator=(Guard&&) = delete;
    ~Guard();

   private:
    CallWatchdog& dog_;
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
