#pragma once

#include <fmt/format.h>

#include <thread>

#include "realrun/transport/mpi/mpi_transport.hpp"

namespace flopcast::realrun {

// Looks after everything under way until `ready`; `awaited` says for what, should that take longer than the patience.
template <class Ready, class Awaited>
void MpiTransport::wait_until(Ready ready, Awaited awaited) {
  using Clock = std::chrono::steady_clock;
  // Answers of a neighbour that is at work come within microseconds; a sleep costs some tens.
  constexpr auto kEager = std::chrono::microseconds(20);
  constexpr auto kNap = std::chrono::microseconds(20);
  // Of several that wait for the same, one tells.
  const auto patience = patience_ + std::chrono::milliseconds(2 * (rank() % 50));
  const Clock::time_point begin = Clock::now();
  while (true) {
    progress();
    if (ready()) return;
    processes_.watch();
    const auto waited = Clock::now() - begin;
    if (waited > patience) {
      processes_.report_failure(fmt::format("rank {} is stuck in {}: it has waited {} ms for {}", rank(),
                                            to_string(*processes_.board().activity_of(processes_.rank())),
                                            patience_.count(), awaited()));
      throw Aborted(processes_.failure());
    }
    if (waited > kEager) std::this_thread::sleep_for(kNap);
  }
}

}  // namespace flopcast::realrun
