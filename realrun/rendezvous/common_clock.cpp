#include "realrun/rendezvous/common_clock.hpp"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "realrun/compute/host_clock.hpp"
#include "realrun/transport/clock_offset.hpp"

namespace flopcast::realrun {

namespace {

constexpr const char* kMachineKey = "clock/machine";
constexpr const char* kSystemKey = "clock/system";

// Of the machine since it was started, for all its containers alike.
std::string machine() {
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string id;
  stream >> id;
  return id;
}

// The system's clock less the steady one in nanoseconds: in picoseconds the years since 1970 do not fit 64 bits.
std::int64_t system_offset() {
  using std::chrono::nanoseconds;
  return nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() -
         nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What to add to host_clock(), of which `offset` is known up to whole periods.
Ticks to_the_host_clock(std::int64_t offset) {
  constexpr Ticks kPicosecondsPerNanosecond = 1000;
  offset = (offset % kHostClockPeriodNs + kHostClockPeriodNs) % kHostClockPeriodNs;
  if (host_clock() / kPicosecondsPerNanosecond + offset >= kHostClockPeriodNs) offset -= kHostClockPeriodNs;
  return offset * kPicosecondsPerNanosecond;
}

}  // namespace

Ticks common_clock_offset(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience) {
  if (place.rank == 0) {
    store.set(kSystemKey, std::to_string(system_offset()));
    store.set(kMachineKey, machine());
    return 0;
  }
  const std::string own = machine();
  if (!own.empty() && wait_for(store, kMachineKey, patience, "the clock of rank 0") == own) return 0;
  constexpr int kReadings = 20;
  std::vector<ClockReading> readings;
  for (int reading = 0; reading < kReadings; ++reading) {
    const Ticks asked = host_clock();
    const std::optional<Ticks> other = store.clock();
    if (!other) break;
    readings.push_back({asked, host_clock(), *other});
  }
  if (!readings.empty()) return -clock_offset(readings);
  return to_the_host_clock(system_offset() - std::stoll(wait_for(store, kSystemKey, patience, "the clock of rank 0")));
}

}  // namespace flopcast::realrun
