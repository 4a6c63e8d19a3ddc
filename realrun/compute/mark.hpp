#pragma once

#include <cstdint>
#include <memory>

#include "realrun/interface.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// A point in the work of a device's queue, which the device comes to some time after the host has set it.
class Moment : public Interface {
 public:
  /// Whether the device has come to it. Throws EnvironmentError when the device has failed.
  virtual bool reached() = 0;
  /// In ticks of host_clock(); waits until it is reached.
  virtual Ticks time() = 0;
};

/// A moment in the work of a device: a time on a device that works at once, else a point in a queue.
struct Mark {
  Ticks ticks = 0;
  std::shared_ptr<Moment> moment = nullptr;
};

/// From when to when, by the clock of the device (Device::mark).
struct Interval {
  Mark start;
  Mark end;
};

}  // namespace flopcast::realrun
