#pragma once

namespace flopcast::realrun {

/// What a machine's processors did meanwhile, as /proc/stat and getrusage() tell it: in hundredths of a second.
struct HostLoad {
  double wall_s = 0;
  double own_cpu_s = 0;     ///< of this process
  double others_cpu_s = 0;  ///< of everybody else, time the hypervisor took included; nothing where that is not known
  int cores = 1;
};

/// Counts from its construction on.
class HostLoadMeter {
 public:
  HostLoadMeter();
  HostLoad load() const;

 private:
  double wall_ = 0;
  double own_ = 0;
  double busy_ = 0;
};

}  // namespace flopcast::realrun
