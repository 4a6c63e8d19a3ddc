#include "realrun/rendezvous/rank_register.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/host/processes.hpp"
#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

std::string here() {
  return fmt::format("process {} on {}", getpid(), host_name());
}

constexpr const char* kHelp =
    "\n  help: a store is for one run: a folder that an earlier one has left is taken for ranks of this";

// The first failure is the one that everybody tells.
[[noreturn]] void fail(Store& store, const std::string& failure) {
  store.set_once("failure", failure);
  throw EnvironmentError(failure);
}

}  // namespace

void gather_ranks(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience) {
  const std::string count = fmt::format("{}", place.ranks);
  if (!store.set_once("ranks", count) && store.get("ranks") != count) {
    fail(store, fmt::format("rank {} was started as one of {} ranks, and another as one of {}", place.rank, count,
                            store.get("ranks").value_or("?")) +
                    kHelp);
  }
  const std::string key = kRankKey + std::to_string(place.rank);
  if (!store.set_once(key, here())) {
    fail(store,
         fmt::format("two processes are rank {}: {} and {}", place.rank, store.get(key).value_or("?"), here()) + kHelp);
  }
  using Steady = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto deadline = Steady::now() + patience;
  std::vector<int> missing(static_cast<std::size_t>(place.ranks));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    const auto has_come = [&](int rank) { return store.get(kRankKey + std::to_string(rank)).has_value(); };
    missing.erase(std::remove_if(missing.begin(), missing.end(), has_come), missing.end());
    if (const auto failure = store.get("failure")) throw EnvironmentError(*failure);
    if (missing.empty()) return;
    if (Steady::now() >= deadline) {
      fail(store, fmt::format("of {} ranks {} {} not come within {} s", place.ranks, fmt::join(missing, ", "),
                              missing.size() == 1 ? "has" : "have", static_cast<double>(patience.count()) / 1000.0));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace flopcast::realrun
