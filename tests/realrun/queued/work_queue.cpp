#include "tests/realrun/queued/work_queue.hpp"

#include <chrono>
#include <utility>

#include "realrun/device/device.hpp"

namespace flopcast::realrun {

bool QueuedMoment::reached() {
  const std::lock_guard lock(mutex_);
  if (reached_ && log_ != nullptr) log_->saw(number_, false);
  return reached_;
}

Ticks QueuedMoment::time() {
  await();
  if (log_ != nullptr) log_->saw(number_, true);
  return time_;
}

void QueuedMoment::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_; });
}

void QueuedMoment::reach() {
  const std::lock_guard lock(mutex_);
  reached_ = true;
  time_ = host_clock();
  changed_.notify_all();
}

WorkQueue::WorkQueue(unsigned seed, int delay, std::shared_ptr<OrderLog> log, int number)
    : random_(seed), delay_(delay), log_(std::move(log)), number_(number), worker_([this] { work(); }) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

void WorkQueue::add(std::function<void()> work) {
  std::vector<MemoryUse> uses = OrderLog::take_uses();
  if (log_ != nullptr) log_->work(number_, std::move(uses));
  push(std::move(work));
}

void WorkQueue::add(std::function<void()> work, NcclPart part) {
  std::vector<MemoryUse> uses = OrderLog::take_uses();
  if (log_ != nullptr) log_->nccl(number_, std::move(uses), std::move(part));
  push(std::move(work));
}

void WorkQueue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(work));
  changed_.notify_all();
}

std::shared_ptr<Moment> WorkQueue::record() {
  auto moment =
      log_ == nullptr ? std::make_shared<QueuedMoment>() : std::make_shared<QueuedMoment>(log_, log_->record(number_));
  push([moment] { moment->reach(); });
  return moment;
}

void WorkQueue::wait(const std::shared_ptr<Moment>& moment) {
  const auto queued = std::dynamic_pointer_cast<QueuedMoment>(moment);
  if (log_ != nullptr && !log_->wait(number_, queued->log(), queued->number())) return;
  push([queued] { queued->await(); });
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
