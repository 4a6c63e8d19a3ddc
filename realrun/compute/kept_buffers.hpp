#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "realrun/buffer.hpp"
#include "realrun/compute/mark.hpp"

namespace flopcast::realrun {

/// Buffers that a device still works on behind the host's back. Memory is handed out again in the order of the
/// computation (MemoryPool), so what other queues use must be held until they are through. Any thread may call.
class KeptBuffers {
 public:
  /// Until the moment is reached and somebody calls again.
  void keep(std::shared_ptr<Moment> until, std::vector<Buffer> buffers) {
    const std::lock_guard lock(mutex_);
    while (!kept_.empty() && kept_.front().until->reached()) kept_.pop_front();
    kept_.push_back({std::move(until), std::move(buffers)});
  }
  /// Waits for all of them.
  void release() {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : kept_) entry.until->time();
    kept_.clear();
  }

 private:
  struct Entry {
    std::shared_ptr<Moment> until;
    std::vector<Buffer> buffers;
  };
  std::mutex mutex_;
  std::deque<Entry> kept_;
};

}  // namespace flopcast::realrun
