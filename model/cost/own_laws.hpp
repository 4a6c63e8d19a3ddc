#pragma once

#include <functional>
#include <string_view>

#include "model/hardware/collective.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// Laws of a researcher in the place of the cost model's own. Each is told what ours says; an empty one is ours.
/// Left out: what follows from them (memory, what is sent) and costs that are no operator and no message, such as the
/// optimizer and the host's launches.
struct CostLaws {
  /// A pass ("forward", "input_gradient", "weight_gradient") of an operator for one microbatch on one device.
  std::function<Seconds(std::string_view op, std::string_view pass, Seconds ours)> operator_time = {};
  /// A collective ("all_reduce" …) of `bytes` as nccl-tests prints them, or a message ("send") between two devices.
  std::function<Seconds(std::string_view kind, Bytes bytes, const GroupPlacement& group, Seconds ours)> network_time =
      {};
};

}  // namespace flopcast
