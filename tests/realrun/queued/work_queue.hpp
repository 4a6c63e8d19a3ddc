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
  /// Like time(), but for another queue: the host does not learn of it.
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

/// A stream without a GPU: a thread that runs its work in order, asynchronously to the caller.
class WorkQueue {
 public:
  /// `delay`: maximum random delay before a piece of work, in microseconds.
  /// `log`, unless null, records all queued work, as queue `number`.
  WorkQueue(unsigned seed, int delay, std::shared_ptr<OrderLog> log = nullptr, int number = 0);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  WorkQueue(WorkQueue&&) = delete;
  WorkQueue& operator=(WorkQueue&&) = delete;
  ~WorkQueue();

  /// Takes the uses noted since the last call (OrderLog::note_use).
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
