#include "realrun/transport/mpi/watchdog.hpp"

#include <utility>

namespace flopcast::realrun {

Watchdog::Watchdog(const std::atomic<std::uint64_t>& beats, std::chrono::milliseconds patience,
                   std::function<void()> bite)
    : beats_(beats), patience_(patience), bite_(std::move(bite)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  std::uint64_t seen = beats_;
  while (!over_.wait_for(lock, patience_, [this] { return is_over_; })) {
    const std::uint64_t now = beats_;
    if (now == seen) return bite_();
    seen = now;
  }
}

}  // namespace flopcast::realrun
