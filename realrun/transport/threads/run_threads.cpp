#include "realrun/transport/threads/run_threads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "model/error/error.hpp"
#include "realrun/transport/threads/thread_transport.hpp"

namespace flopcast::realrun {

namespace {

void run_rank(ThreadHub& hub, int rank, const MakeTransport& make_transport,
              const std::function<void(Transport&)>& body) {
  try {
    const std::unique_ptr<Transport> transport = make_transport(hub, rank);
    try {
      body(*transport);
      transport->note({.kind = Activity::Kind::kDone, .action = {}});
    } catch (const Aborted&) {
      return;  // somebody else's failure, already told
    } catch (const std::exception& error) {
      // Before the transport is taken down: its second thread may wait for others.
      hub.abort(fmt::format("rank {} failed in {}: {}", rank, hub.activity_of(rank), error.what()));
    }
  } catch (const std::exception& error) {
    hub.abort(fmt::format("rank {} could not start: {}", rank, error.what()));
  }
}

/// Which ranks have come to their end.
class Attendance {
 public:
  explicit Attendance(int ranks) : ended_(static_cast<std::size_t>(ranks), false) {}

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

  /// Returns when all have left, or when some have not `patience` after the run was lost.
  void wait(const ThreadHub& hub, std::chrono::milliseconds patience) {
    using Steady = std::chrono::steady_clock;
    constexpr auto kPiece = std::chrono::milliseconds(100);
    std::optional<Steady::time_point> deadline;
    std::unique_lock lock(mutex_);
    while (std::count(ended_.begin(), ended_.end(), false) > 0) {
      if (!deadline && !hub.failure().empty()) deadline = Steady::now() + patience;
      if (deadline && Steady::now() >= *deadline) return;
      changed_.wait_until(lock, std::chrono::system_clock::now() + kPiece);
    }
  }

  std::vector<int> missing() const {
    const std::lock_guard lock(mutex_);
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < ended_.size(); ++rank) {
      if (!ended_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ended_;
};

std::string with_missing(const ThreadHub& hub, const std::vector<int>& missing) {
  std::string failure = hub.failure();
  for (const int rank : missing) {
    failure += fmt::format("; rank {} has not come back from {}", rank, hub.activity_of(rank));
  }
  return failure;
}

}  // namespace

void run_threads(int ranks, const ThreadOptions& options, const std::function<void(Transport&)>& body) {
  run_threads(
      ranks, options, [](ThreadHub& hub, int rank) { return std::make_unique<ThreadTransport>(hub, rank); }, body);
}

void run_threads(int ranks, const ThreadOptions& options, const MakeTransport& make_transport,
                 const std::function<void(Transport&)>& body) {
  FLOPCAST_CHECK(ranks > 0);
  ThreadHub hub(ranks, options.patience, options.interruption);
  Attendance attendance(ranks);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&hub, &attendance, rank, &make_transport, &body] {
      run_rank(hub, rank, make_transport, body);
      attendance.leave(rank);
    });
  }
  attendance.wait(hub, options.patience);
  const std::vector<int> missing = attendance.missing();
  if (!missing.empty() && options.abandon) options.abandon(with_missing(hub, missing));
  for (std::thread& thread : threads) thread.join();
  if (!hub.failure().empty()) throw EnvironmentError(hub.failure());
}

}  // namespace flopcast::realrun
