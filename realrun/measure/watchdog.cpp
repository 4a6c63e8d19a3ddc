#include "realrun/measure/watchdog.hpp"

#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

CallWatchdog::CallWatchdog(Bark bark) : bark_(std::move(bark)), thread_([this] { watch(); }) {}

CallWatchdog::~CallWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CallWatchdog::watch() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return guarding_ || closing_; });
    if (closing_) return;
    // A guard that comes after the one that is waited for has another deadline.
    if (changed_.wait_until(lock, deadline_) == std::cv_status::no_timeout || !guarding_) continue;
    if (std::chrono::steady_clock::now() < deadline_) continue;
    guarding_ = false;
    bark_(what_, limit_);
  }
}

CallWatchdog::Guard::Guard(CallWatchdog& dog, std::string what, std::chrono::milliseconds limit) : dog_(dog) {
  {
    const std::lock_guard lock(dog_.mutex_);
    FLOPCAST_CHECK(!dog_.guarding_);
    dog_.what_ = std::move(what);
    dog_.limit_ = limit;
    dog_.deadline_ = std::chrono::steady_clock::now() + limit;
    dog_.guarding_ = true;
  }
  dog_.changed_.notify_one();
}

CallWatchdog::Guard::~Guard() {
  const std::lock_guard lock(dog_.mutex_);
  dog_.guarding_ = false;
}

}  // namespace flopcast
