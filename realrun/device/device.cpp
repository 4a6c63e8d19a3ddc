#include "realrun/device/device.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace flopcast::realrun {

Ticks host_clock() {
  constexpr Ticks kPicosecondsPerNanosecond = 1000;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  return nanoseconds % kHostClockPeriodNs * kPicosecondsPerNanosecond;
}

Ticks clock_offset(const std::vector<ClockReading>& readings) {
  if (readings.empty()) return 0;
  const auto quickest = std::min_element(
      readings.begin(), readings.end(),
      [](const ClockReading& a, const ClockReading& b) { return a.answered - a.asked < b.answered - b.asked; });
  return quickest->asked + (quickest->answered - quickest->asked) / 2 - quickest->other;
}

Watchdog::Watchdog(std::chrono::milliseconds patience, std::function<void()> bite,
                   const std::atomic<std::uint64_t>* beats)
    : patience_(patience), bite_(std::move(bite)), beats_(beats), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  const auto count = [this] { return beats_ == nullptr ? 0 : beats_->load(); };
  std::unique_lock lock(mutex_);
  for (std::uint64_t seen = count(); !over_.wait_for(lock, patience_, [this] { return is_over_; }); seen = count()) {
    if (count() == seen) return bite_();
  }
}

Buffer allocate_host(std::size_t bytes) {
  return bytes == 0 ? Buffer() : Buffer(std::shared_ptr<std::byte[]>(new std::byte[bytes]()), bytes);
}

namespace {

std::size_t size_class(std::size_t bytes) {
  constexpr std::size_t kSmallest = 512;  // keeps every buffer aligned for vector loads
  if (bytes <= kSmallest) return kSmallest;
  const std::size_t eighth = std::max(kSmallest, std::bit_floor(bytes) / 8);
  return (bytes + eighth - 1) / eighth * eighth;
}

}  // namespace

struct MemoryPool::State {
  State(Allocate allocator, Free releaser) : allocate(std::move(allocator)), free(std::move(releaser)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (const auto& [bytes, blocks] : idle) {
      for (std::byte* block : blocks) free(block);
    }
  }

  Allocate allocate;
  Free free;
  std::mutex mutex;
  std::map<std::size_t, std::vector<std::byte*>> idle;  // by size class
};

MemoryPool::MemoryPool(Allocate allocate, Free free)
    : state_(std::make_shared<State>(std::move(allocate), std::move(free))) {}

Buffer MemoryPool::take(std::size_t bytes) {
  if (bytes == 0) return {};
  const std::size_t size = size_class(bytes);
  std::byte* block = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    std::vector<std::byte*>& idle = state_->idle[size];
    if (!idle.empty()) {
      block = idle.back();
      idle.pop_back();
    }
  }
  if (block == nullptr) block = state_->allocate(size);
  const auto give_back = [state = state_, size](std::byte* address) {
    const std::lock_guard lock(state->mutex);
    state->idle[size].push_back(address);
  };
  return Buffer(std::shared_ptr<std::byte[]>(block, give_back), bytes);
}

}  // namespace flopcast::realrun
