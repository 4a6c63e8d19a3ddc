#include "planner/shared/crew.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this] { serve(); });
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ThreadPool(ThreadPool&&) = delete;
  ThreadPool& operator=(ThreadPool&&) = delete;
  ~ThreadPool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void run(std::size_t count, const std::function<void(std::size_t)>& body) {
    std::unique_lock<std::mutex> lock(mutex_);
    body_ = &body;
    count_ = count;
    next_ = 0;
    failed_ = count;
    failure_ = nullptr;
    work_.notify_all();
    take_indices(lock);
    done_.wait(lock, [this] { return busy_ == 0; });
    body_ = nullptr;
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return ends_ || (body_ != nullptr && next_ < count_); });
      if (ends_) return;
      take_indices(lock);
      done_.notify_all();
    }
  }

  void take_indices(std::unique_lock<std::mutex>& lock) {
    ++busy_;
    while (next_ < count_) {
      const std::size_t index = next_++;
      lock.unlock();
      std::exception_ptr failure = run_one(index);
      lock.lock();
      if (!failure || index >= failed_) continue;
      // If several indices failed, the lowest counts, whichever came first.
      failed_ = index;
      failure_ = std::move(failure);
    }
    --busy_;
  }

  std::exception_ptr run_one(std::size_t index) const {
    try {
      (*body_)(index);
    } catch (const std::exception&) {
      return std::current_exception();
    }
    return nullptr;
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  const std::function<void(std::size_t)>* body_ = nullptr;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  std::size_t failed_ = 0;
  int busy_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
};

}  // namespace

ParallelFor threaded_for(int threads) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int wanted = threads > 0 ? threads : std::max(1, cores);
  if (wanted == 1) return serial_for;
  const auto pool = std::make_shared<ThreadPool>(wanted);
  return [pool](std::size_t count, const std::function<void(std::size_t)>& body) { pool->run(count, body); };
}

int thread_count(const std::optional<int>& threads, std::size_t tasks) {
  constexpr int kMost = 4096;
  if (!threads) return 0;
  if (*threads < 1 || *threads > kMost) {
    throw ConfigError({"--threads", fmt::format("{} is out of range", *threads), "", fmt::format("1 to {}", kMost)});
  }
  return static_cast<int>(std::min(static_cast<std::size_t>(*threads), std::max<std::size_t>(1, tasks)));
}

}  // namespace flopcast
