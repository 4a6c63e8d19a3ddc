#include "realrun/rendezvous/rank_register.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "model/error/error.hpp"

namespace flopcast::realrun {

namespace {

std::string here() {
  std::array<char, 256> name{};
  const bool known = gethostname(name.data(), name.size() - 1) == 0;
  return fmt::format("process {} on {}", getpid(), known ? name.data() : "an unnamed host");
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
  while (true) {
    std::vector<int> missing;
    for (int rank = 0; rank < place.ranks; ++rank) {
      if (!store.get(kRankKey + std::to_string(rank))) missing.push_back(rank);
    }
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
