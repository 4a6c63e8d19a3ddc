#pragma once

#include <cstddef>
#include <vector>

#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/device.hpp"
#include "realrun/executor/executor.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// What messages between two neighbouring stages cost the rank that receives them, in ticks of host_clock().
struct MessageTimes {
  MessageKey key;  ///< of the first one
  std::size_t bytes = 0;
  std::vector<Ticks> one_way;  ///< from the send to the arrival at a rank that waits for nothing else
  std::vector<Ticks> receive;  ///< what receiving takes of the receiver's time when the message has long been there
};

/// Sends messages over every boundary between two ranks of the program, both ways, one boundary after the other.
/// Called by all ranks. Returns what this rank received. One clock for all ranks is assumed.
std::vector<MessageTimes> measure_messages(const Program& program, const RankPlace& place, const StageCompute& compute,
                                           RankTransport& transport, ComputeDevice& device);

}  // namespace flopcast::realrun
