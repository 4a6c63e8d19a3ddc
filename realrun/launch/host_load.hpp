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

/// From now on memory that is freed stays with the process and is given out again, as the caching allocators of GPUs
/// do; larger pieces than 32 MiB still come from the system. Given back, it would be mapped again page by page in the
/// middle of later passes, which then take up to a quarter longer, or not, as the order of their allocations has it:
/// the same passes would not take the same time in a calibration and in the run. Called once, before other threads run.
/// Does something with the GNU C library only.
void keep_freed_memory();

}  // namespace flopcast::realrun
