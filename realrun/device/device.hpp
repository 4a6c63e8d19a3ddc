#pragma once

#include <cstddef>
#include <vector>

#include "model/workload/training.hpp"
#include "realrun/device/arithmetic.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/device/interface.hpp"
#include "realrun/device/mark.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// Memory and elementwise work of one rank's device, as the executor and the parallel strategies need it. All buffers
/// hold 32-bit floats. A device may work behind the host's back: operations happen in the order of the calls.
class ComputeDevice : public Interface {
 public:
  /// Filled with zeros.
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// The same without the zeros: for what is written before it is read.
  virtual Buffer reserve(std::size_t bytes) { return allocate(bytes); }
  virtual void zero(const Buffer& buffer) = 0;
  virtual void copy(const Buffer& from, const Buffer& to) = 0;
  virtual void add(const Buffer& from, const Buffer& to) = 0;  ///< to += from
  /// One optimizer step: `updated`, which may be `weights`, from weights, gradients and states. `step` counts from 1.
  virtual void optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                        const std::vector<Buffer>& states, const Buffer& updated) = 0;

  /// From and to the host's memory; both return when the host may go on with it.
  virtual void upload(const std::byte* from, const Buffer& to) = 0;
  virtual void download(const Buffer& from, std::byte* to) = 0;

  virtual Mark mark() = 0;
  /// In ticks of host_clock(); waits for the moment if need be.
  virtual Ticks time_of(const Mark& mark) = 0;
  /// Gives a device that works behind the host's back a little to do, so that what is called next has long been called
  /// when the device comes to it.
  virtual void hold() {}
};

/// Turns gradients into shorter messages and back, on one device. Values are 32-bit floats.
class GradientCodec : public Interface {
 public:
  /// How the messages of replicas are added up.
  enum class Exchange {
    kByParts,   ///< everybody sends part i to replica i, which adds up and sends its sum, encoded again, to everybody
    kGathered,  ///< everybody sends its message to everybody
  };
  virtual Exchange exchange() const = 0;
  /// Whether what a message leaves out is kept and added to the next values (error feedback).
  virtual bool keeps_residual() const = 0;

  /// Of the message for `count` values.
  virtual std::size_t message_bytes(std::size_t count) const = 0;
  /// Writes the message for `values` + `residual` and leaves in `residual` what the message does not say. `residual` is
  /// empty where none is kept.
  virtual void encode(const Buffer& values, const Buffer& residual, const Buffer& message) = 0;
  /// sum += what the message for that many values says.
  virtual void add_decoded(const Buffer& message, const Buffer& sum) = 0;
};

}  // namespace flopcast::realrun
