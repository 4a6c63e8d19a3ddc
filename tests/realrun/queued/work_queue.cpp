#include "tests/realrun/queued/work_queue.hpp"

#include <chrono>
#include <utility>

#include "realrun/device/device.hpp"

namespace flopcast::realrun {

bool QueuedMoment::reached() {
  const std::lock_guard lock(mutex_);
  return reached_;
}

Ticks QueuedMoment::time() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_; });
  return time_;
}

void QueuedMoment::reach() {
  const std::lock_guard lock(mutex_);
  reached_ = true;
  time_ = host_clock();
  changed_.notify_all();
}

WorkQueue::WorkQueue(unsigned seed, int delay) : random_(seed), delay_(delay), worker_([this] { work(); }) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

void WorkQueue::add(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(work));
  changed_.notify_all();
}

std::shared_ptr<Moment> WorkQueue::record() {
  auto moment = std::make_shared<QueuedMoment>();
  add([moment] { moment->reach(); });
  return moment;
}

void WorkQueue::wait(const std::shared_ptr<Moment>& moment) {
  add([moment] { moment->time(); });
}

void WorkQueue::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    random_ = random_ * 1664525U + 1013904223U;
    constexpr unsigned kDawdlesOneIn = 8;
    if (delay_ > 0 && (random_ >> 8U) % kDawdlesOneIn == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds((random_ >> 16U) % static_cast<unsigned>(delay_)));
    }
    next();
  }
}

}  // namespace flopcast::realrun
