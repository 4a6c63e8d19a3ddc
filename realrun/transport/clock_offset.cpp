#include "realrun/transport/clock_offset.hpp"

#include <algorithm>

namespace flopcast::realrun {

Ticks clock_offset(const std::vector<ClockReading>& readings) {
  if (readings.empty()) return 0;
  const auto quickest = std::min_element(
      readings.begin(), readings.end(),
      [](const ClockReading& a, const ClockReading& b) { return a.answered - a.asked < b.answered - b.asked; });
  return quickest->asked + (quickest->answered - quickest->asked) / 2 - quickest->other;
}

}  // namespace flopcast::realrun
