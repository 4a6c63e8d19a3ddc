#include "sim/schedule/split_backward.hpp"

#include <algorithm>

#include "sim/schedule/orders.hpp"

namespace flopcast {

void append_split_order(const SplitOrder& order, std::vector<Action>& actions) {
  const std::size_t count = order.forwards.size();
  const std::size_t warmup = std::min(order.warmup, count);
  const auto push_weight_gradient = [&](std::size_t index) {
    const Action& input_gradient = order.input_gradients[index];
    actions.push_back(weight_gradient_action(input_gradient.stage, static_cast<int>(input_gradient.microbatch)));
  };
  actions.insert(actions.end(), order.forwards.begin(), order.forwards.begin() + static_cast<std::ptrdiff_t>(warmup));
  for (std::size_t index = 0; index < count; ++index) {
    if (warmup + index < count) actions.push_back(order.forwards[warmup + index]);
    actions.push_back(order.input_gradients[index]);
    if (index >= order.delay) push_weight_gradient(index - order.delay);
  }
  for (std::size_t index = count - std::min(order.delay, count); index < count; ++index) push_weight_gradient(index);
}

Program handcrafted_zero_bubble(std::string_view schedule, const ScheduleRequest& request, int depth) {
  Program program = empty_loop(schedule, request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    SplitOrder order;
    for (int microbatch = 0; microbatch < request.microbatches; ++microbatch) {
      order.forwards.push_back(forward_action(rank, microbatch));
      order.input_gradients.push_back(input_gradient_action(rank, microbatch));
    }
    order.warmup = static_cast<std::size_t>(depth) * static_cast<std::size_t>(request.pipeline_ranks - 1 - rank);
    order.delay = static_cast<std::size_t>(depth) * static_cast<std::size_t>(rank);
    append_split_order(order, program.ranks[static_cast<std::size_t>(rank)]);
  }
  return program;
}

}  // namespace flopcast
