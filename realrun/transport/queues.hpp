#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "realrun/device/mark.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// What one rank's device does side by side. What is called for one queue happens in the order of the calls.
enum class Queue : std::uint8_t {
  kCompute,   ///< passes, optimizer, and collectives that they wait for
  kSend,      ///< messages to other ranks
  kReceive,   ///< messages from other ranks
  kGradient,  ///< collectives beside the computation
};
inline constexpr int kQueues = 4;

/// The queues of one rank on a device that works behind the host's back, as transports need them. Every call returns at
/// once. Nothing keeps a buffer alive until the device has come to it: whoever calls does (KeptBuffers). Any thread may
/// call, one at a time for each queue.
class Queues : public Interface {
 public:
  /// One more, beside those that have names. Before any other thread uses the queues.
  virtual Queue add_queue() = 0;
  /// A few bytes of the device's memory, for signals.
  virtual Buffer reserve_word() = 0;
  virtual std::shared_ptr<Moment> record(Queue queue) = 0;
  /// What is called for the queue from now on waits for the moment, of whichever rank of this process.
  virtual void wait(Queue queue, const std::shared_ptr<Moment>& moment) = 0;
  virtual void copy(Queue queue, const Buffer& from, const Buffer& to) = 0;
  /// output = the reduction of the inputs, in their order; the output may be one of them.
  virtual void reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
                      const Buffer& output) = 0;
};

}  // namespace flopcast::realrun
