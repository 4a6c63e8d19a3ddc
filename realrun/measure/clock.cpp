#include "realrun/measure/clock.hpp"

#include <ctime>

namespace flopcast {

namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Clock machine_clock() {
  return {[] { return seconds_of(CLOCK_MONOTONIC); }, [] { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }};
}

}  // namespace flopcast
