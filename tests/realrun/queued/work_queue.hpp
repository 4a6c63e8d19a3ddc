#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "realrun/device/device.hpp"
#include "tests/realrun/queued/order_log.hpp"

namespace flopcast::realrun {

/// Reached when a queue has come to it.
class QueuedMoment : public Moment {
 public:
  QueuedMoment() = default;
  QueuedMoment(std::shared_ptr<OrderLog> log, std::size_t number) : log_(std::move(log)), number_(number) {}
  bool reached() override;
  Ticks time() override;
  void reach();
  /// As time(), for another queue: the host does not know of it.
  void await();
  const OrderLog* log() const { return log_.get(); }
  std::size_t number() const { return number_; }

 private:
  std::shared_ptr<OrderLog> log_;
  std::size_t number_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  Ticks time_ = 0;
};

/// A stream without a GPU: a thread that does what it was given, in order, behind the caller's back.
class WorkQueue {
 public:
  /// `delay` in microseconds: at most so long it dawdles before a piece of work, by chance.
  /// `log`, when there is one, is told all that is queued, as queue `number`.
  WorkQueue(unsigned seed, int delay, std::shared_ptr<OrderLog> log = nullptr, int number = 0);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  WorkQueue(WorkQueue&&) = delete;
  WorkQueue& operator=(WorkQueue&&) = delete;
  ~WorkQueue();

  /// Uses what was noted since the last (OrderLog::note_use).
  void add(std::function<void()> work);
  void add(std::function<void()> work, NcclPart part);
  std::shared_ptr<Moment> record();
  void wait(const std::shared_ptr<Moment>& moment);

 private:
  void push(std::function<void()> work);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool closing_ = false;
  unsigned random_ = 1;
  int delay_ = 0;
  std::shared_ptr<OrderLog> log_;
  int number_ = 0;
  std::thread worker_;
};

}  // namespace flopcast::realrun
