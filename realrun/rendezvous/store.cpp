#include "realrun/rendezvous/store.hpp"

#include <fmt/format.h>

#include <thread>

#include "model/error/error.hpp"

namespace flopcast::realrun {

std::string wait_for(Store& store, const std::string& key, std::chrono::milliseconds patience,
                     const std::string& what) {
  using Steady = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto deadline = Steady::now() + patience;
  while (true) {
    if (std::optional<std::string> value = store.get(key)) return *value;
    if (const std::optional<std::string> failure = store.get("failure")) throw EnvironmentError(*failure);
    if (Steady::now() >= deadline) {
      throw EnvironmentError(
          fmt::format("{} has not come within {} s", what, static_cast<double>(patience.count()) / 1000.0));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace flopcast::realrun
