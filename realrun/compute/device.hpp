#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "realrun/buffer.hpp"
#include "realrun/compute/optimizer.hpp"
#include "realrun/interface.hpp"
#include "sim/lower/step_times.hpp"

namespace flopcast::realrun {

/// A moment in the work of a device: a time on a CPU, an event in a stream on a GPU.
struct Mark {
  std::int64_t id = 0;
};

/// Memory and elementwise work of one rank's device, as the executor and the parallel strategies need it. All buffers
/// hold 32-bit floats. A device may work behind the host's back: operations happen in the order of the calls.
class Device : public Interface {
 public:
  /// Filled with zeros.
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void zero(const Buffer& buffer) = 0;
  virtual void copy(const Buffer& from, const Buffer& to) = 0;
  virtual void add(const Buffer& from, const Buffer& to) = 0;  ///< to += from
  /// One optimizer step: `updated`, which may be `weights`, from weights, gradients and states. `step` counts from 1.
  virtual void optimize(const Optimizer& rule, int step, const Buffer& weights, const Buffer& gradients,
                        const std::vector<Buffer>& states, const Buffer& updated) = 0;

  virtual Mark mark() = 0;
  /// In ticks of host_clock(); waits for the moment if need be.
  virtual Ticks time_of(Mark mark) = 0;
};

}  // namespace flopcast::realrun
