#pragma once

#include <cstddef>

#include "realrun/buffer.hpp"
#include "realrun/interface.hpp"

namespace flopcast::realrun {

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
