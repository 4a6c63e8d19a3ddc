#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/schedule/catalogue.hpp"

namespace flopcast {

// What the generators share. Stages are laid out in a loop: chunk k of rank r is stage k * p + r.

constexpr Action forward_action(int stage, int microbatch) {
  return Action{.microbatch = static_cast<std::uint32_t>(microbatch),
                .stage = static_cast<std::uint16_t>(stage),
                .kind = ActionKind::kForward};
}

constexpr Action backward_action(int stage, int microbatch) {
  return Action{.microbatch = static_cast<std::uint32_t>(microbatch),
                .stage = static_cast<std::uint16_t>(stage),
                .kind = ActionKind::kBackward};
}

constexpr Action input_gradient_action(int stage, int microbatch) {
  return Action{.microbatch = static_cast<std::uint32_t>(microbatch),
                .stage = static_cast<std::uint16_t>(stage),
                .kind = ActionKind::kInputGradient};
}

constexpr Action weight_gradient_action(int stage, int microbatch) {
  return Action{.microbatch = static_cast<std::uint32_t>(microbatch),
                .stage = static_cast<std::uint16_t>(stage),
                .kind = ActionKind::kWeightGradient};
}

/// A program with the loop's stage map, one chain and an empty list of actions, room reserved, for every rank.
Program empty_loop(std::string_view schedule, const ScheduleRequest& request);

/// min(warmup, m) forwards, then one forward and one backward in turn, then the backwards that are left; one stage per
/// rank. `warmup[r]` belongs to rank r.
Program one_forward_one_backward(std::string_view schedule, const ScheduleRequest& request,
                                 const std::vector<int>& warmup);

/// p - 1 - r: just enough forwards to reach the last rank before the first backward is due.
std::vector<int> shortest_warmup(int pipeline_ranks);

/// The exact makespan of one_forward_one_backward with the shortest warm-up:
/// (m + p - 1)(F + B) + 2c [(p - 1) + ceil(max(0, m - 2)(p - 1) / p)]. The steady state costs 2c (p - 1) / p a
/// microbatch, because a rank that alternates waits for the round trip to its neighbour.
std::optional<Ticks> one_forward_one_backward_makespan(const ScheduleRequest& request, const UniformTimes& times);

}  // namespace flopcast
