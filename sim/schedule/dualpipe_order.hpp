#pragma once

#include <vector>

#include "sim/schedule/action.hpp"

namespace flopcast {

/// Where a rank stands in a DualPipe order. It works on two stages: `near` lies closer to the input of its chain than
/// `far` does to the input of its own.
struct DualPipePlace {
  int near = 0;
  int far = 0;
  int position = 0;      ///< 0 at the ends of the pipeline, where `near` is a first stage
  int positions = 1;     ///< how many positions there are; the last one has its stages next to each other
  int microbatches = 1;  ///< through each of the two stages; at least 2 * positions
};

/// The order of one rank, in the eight steps of deepseek-ai/DualPipe. With n positions, k this rank's, M microbatches:
///   1  2(n-1-k) times F near
///   2  k+1 times F near, F far
///   3  n-1-k times I far, W far, F far
///   4  M-2n+k+1 times (F near; B far), (F far; B near); at the last position the first F near and B far run one after
///      the other
///   5  n-1-k times B far, (F far; B near)
///   6  k+1 times B far, B near, of which the second half only I
///   7  n-1-k times W, I near
///   8  the k+1 W that are left; W always belongs to the oldest I without one
std::vector<Action> dualpipe_order(const DualPipePlace& place);

}  // namespace flopcast
