#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "realrun/device/device.hpp"

namespace flopcast::realrun {

/// Reached when a queue has come to it.
class QueuedMoment : public Moment {
 public:
  bool reached() override;
  Ticks time() override;
  void reach();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  Ticks time_ = 0;
};

/// A stream without a GPU: a thread that does what it was given, in order, behind the caller's back.
class WorkQueue {
 public:
  /// `delay` in microseconds: at most so long it dawdles before a piece of work, by chance.
  explicit WorkQueue(unsigned seed, int delay);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  WorkQueue(WorkQueue&&) = delete;
  WorkQueue& operator=(WorkQueue&&) = delete;
  ~WorkQueue();

  void add(std::function<void()> work);
  std::shared_ptr<Moment> record();
  void wait(const std::shared_ptr<Moment>& moment);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool closing_ = false;
  unsigned random_ = 1;
  int delay_ = 0;
  std::thread worker_;
};

}  // namespace flopcast::realrun
