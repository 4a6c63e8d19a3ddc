#include "realrun/launch/host_load.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "realrun/device/mark.hpp"

namespace flopcast::realrun {

namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double own_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// All processors together: user, nice, system, (idle, iowait), irq, softirq, steal; see proc(5).
double busy_seconds() {
  std::ifstream stream("/proc/stat");
  std::string name;
  stream >> name;
  constexpr std::array<bool, 8> kCounts = {true, true, true, false, false, true, true, true};
  double ticks = 0;
  for (const bool counts : kCounts) {
    double value = 0;
    stream >> value;
    ticks += counts ? value : 0;
  }
  return stream ? ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) : 0;
}

double wall_seconds() {
  return static_cast<double>(host_clock()) * 1e-12;
}

}  // namespace

HostLoadMeter::HostLoadMeter() : wall_(wall_seconds()), own_(own_cpu_seconds()), busy_(busy_seconds()) {}

HostLoad HostLoadMeter::load() const {
  HostLoad load;
  load.wall_s = wall_seconds() - wall_;
  load.own_cpu_s = own_cpu_seconds() - own_;
  load.others_cpu_s = std::max(0.0, busy_seconds() - busy_ - load.own_cpu_s);
  load.cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return load;
}

}  // namespace flopcast::realrun

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace flopcast::realrun {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestAllowed = 32 * 1024 * 1024;
  mallopt(M_MMAP_THRESHOLD, kLargestAllowed);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

}  // namespace flopcast::realrun
