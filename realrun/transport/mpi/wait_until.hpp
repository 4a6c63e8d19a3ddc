#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "realrun/transport/mpi/mpi_transport.hpp"

namespace flopcast::realrun {

// Looks after everything under way until `ready`; `awaited` says for what, should that take longer than the patience.
template <class Ready, class Awaited>
void MpiTransport::wait_until(Ready ready, Awaited awaited) {
  using Clock = std::chrono::steady_clock;
  // Answers of a neighbour that is at work come within microseconds; a sleep costs some tens.
  constexpr auto kEager = std::chrono::microseconds(20);
  constexpr auto kShortest = std::chrono::microseconds(20);
  constexpr auto kLongest = std::chrono::microseconds(500);
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
    // A hundredth of the wait: who waits long leaves the cores to others, and is late by little.
    if (waited > kEager) std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 100, kShortest, kLongest));
  }
}

}  // namespace flopcast::realrun
