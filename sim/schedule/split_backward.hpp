#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "sim/schedule/catalogue.hpp"

namespace flopcast {

/// How one rank splits its backward passes: `warmup` forwards, then in turn a forward, an input gradient and, once
/// `delay` input gradients lie behind it, the oldest weight gradient; then without forwards, then the weight gradients
/// that are left. `forwards` and `input_gradients` are the rank's actions in their order.
struct SplitOrder {
  std::vector<Action> forwards;
  std::vector<Action> input_gradients;
  std::size_t warmup = 0;
  std::size_t delay = 0;
};
void append_split_order(const SplitOrder& order, std::vector<Action>& actions);

/// The handcrafted schedules of 2401.10241: rank r has `depth` times 1f1b's warm-up, depth (p - 1 - r), and keeps
/// `depth` r weight gradients back.
Program handcrafted_zero_bubble(std::string_view schedule, const ScheduleRequest& request, int depth);

}  // namespace flopcast
