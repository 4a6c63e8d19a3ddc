#include "realrun/device/mark.hpp"

#include <algorithm>
#include <chrono>

#include "base/text/error.hpp"

namespace flopcast::realrun {

Ticks host_clock() {
  constexpr Ticks kPicosecondsPerNanosecond = 1000;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  return nanoseconds % kHostClockPeriodNs * kPicosecondsPerNanosecond;
}

Ticks clock_offset(const std::vector<ClockReading>& readings) {
  if (readings.empty()) return 0;
  const auto quickest = std::min_element(
      readings.begin(), readings.end(),
      [](const ClockReading& a, const ClockReading& b) { return a.answered - a.asked < b.answered - b.asked; });
  return quickest->asked + (quickest->answered - quickest->asked) / 2 - quickest->other;
}

}  // namespace flopcast::realrun
