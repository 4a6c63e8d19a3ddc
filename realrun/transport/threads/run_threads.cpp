#include "realrun/transport/threads/run_threads.hpp"

#include <fmt/format.h>

#include <exception>
#include <thread>
#include <vector>

#include "model/error/error.hpp"
#include "realrun/transport/threads/thread_transport.hpp"

namespace flopcast::realrun {

namespace {

void run_rank(ThreadHub& hub, int rank, const std::function<void(Transport&)>& body) {
  try {
    ThreadTransport transport(hub, rank);
    try {
      body(transport);
      transport.note({.kind = Activity::Kind::kDone, .action = {}});
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

}  // namespace

void run_threads(int ranks, const ThreadOptions& options, const std::function<void(Transport&)>& body) {
  FLOPCAST_CHECK(ranks > 0);
  ThreadHub hub(ranks, options.patience);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&hub, rank, &body] { run_rank(hub, rank, body); });
  }
  for (std::thread& thread : threads) thread.join();
  if (!hub.failure().empty()) throw EnvironmentError(hub.failure());
}

}  // namespace flopcast::realrun
