#include "realrun/compute/sleep/pace.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "realrun/compute/host_clock.hpp"

namespace flopcast::realrun {

namespace {

constexpr Ticks kPerNanosecond = 1000;
constexpr Ticks kPerMicrosecond = 1'000'000;
constexpr Ticks kPerSecond = 1'000'000 * kPerMicrosecond;
constexpr Ticks kSpun = 40 * kPerMicrosecond;     // longer than most timers are late
constexpr Ticks kAtOnce = 200 * kPerMicrosecond;  // between actions without waiting
// What is later than any timer was starved: that shows, and counts as a disturbance.
constexpr Ticks kMostMadeUp = 1000 * kPerMicrosecond;
constexpr Ticks kPokeEvery = 1000 * kPerMicrosecond;

}  // namespace

Pace::Pace(std::function<void()> poke) : poke_(std::move(poke)) {
  // The kernel may otherwise bundle timers within 50 us. Of this thread only; without it sleeps are less exact.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

void Pace::begin() {
  const Ticks now = host_clock();
  const Ticks late = std::clamp<Ticks>(ended_ - deadline_, 0, kMostMadeUp);
  // Who waited for a message between the two actions has begun when it came.
  deadline_ = now - ended_ < kAtOnce ? now - late : now;
}

void Pace::work(Ticks duration) {
  deadline_ += duration;
  sleep_until(deadline_ - kSpun);
}

void Pace::pause() {
  paused_ = host_clock();
}

void Pace::resume() {
  deadline_ += host_clock() - paused_;
}

void Pace::end() {
  while (host_clock() < deadline_) {
  }
  ended_ = host_clock();
}

void Pace::sleep_until(Ticks deadline) {
  for (Ticks now = host_clock(); now < deadline; now = host_clock()) {
    const Ticks wake = std::min(deadline, now + kPokeEvery);
    timespec time{};
    time.tv_sec = static_cast<std::time_t>(wake / kPerSecond);
    time.tv_nsec = static_cast<long>(wake % kPerSecond / kPerNanosecond);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
    }
    poke_();
  }
}

}  // namespace flopcast::realrun
