// ZBV: Qi 2023, arXiv 2401.10241, section 6.
//
// Rule (fixed, default): ScheduleZBVZeroBubble of torch.distributed.pipelining. On the V map, F0 I0 W0 the rank's
// actions on the way down, F1 I1 W1 those on the way back, rank r executes 2 (p - r) - 1 times F0; r times F1 F0; p - r
// times F1 I1 W1; then F0 I0 W0 F1 I1 W1 until no forward is left; r times I0 I1; p - r times I0 W0; then what is left
// of W1 and of W0. It is made for max(m, 2 p - 1) microbatches and the surplus left out.
// Rule (greedy): the order with the shortest span found for the given times within the same memory (block_search.hpp);
// the span, from a rank's first start to its last end, is what "zero bubble" is about. Its makespan is at most that of
// the fixed order. Peak in flight: 2 p chunks, as much as p
// microbatches; an activation is held until W.
// Makespan: m (F + B) + (p - 1) F, times per chunk and m counted twice: 2 m (F + B) + (p - 1) F, exact at c = 0 for
// F = I = W and m >= 2 p - 1; no rank then idles between its first and its last action.
// Constraints: two chunks per rank.

#include <algorithm>

#include "sim/schedule/block_search.hpp"
#include "sim/schedule/generators.hpp"
#include "sim/schedule/orders.hpp"
#include "sim/schedule/v_map.hpp"

namespace flopcast {

namespace {

// One rank's order, which skips the surplus microbatches.
class RankOrder {
 public:
  RankOrder(const ScheduleRequest& request, int rank, std::vector<Action>& actions)
      : microbatches_(request.microbatches), actions_(actions) {
    for (int chunk = 0; chunk < 2; ++chunk) stage_[chunk] = v_stage(request.pipeline_ranks, rank, chunk);
  }

  void forward(int chunk) { push(forward_action(stage_[chunk], forwards_[chunk]++)); }
  void input_gradient(int chunk) { push(input_gradient_action(stage_[chunk], input_gradients_[chunk]++)); }
  void weight_gradient(int chunk) { push(weight_gradient_action(stage_[chunk], weight_gradients_[chunk]++)); }
  void backward(int chunk) {
    input_gradient(chunk);
    weight_gradient(chunk);
  }
  int forwards(int chunk) const { return forwards_[chunk]; }
  bool owes_weight_gradient(int chunk) const { return weight_gradients_[chunk] < input_gradients_[chunk]; }

 private:
  void push(const Action& action) {
    if (static_cast<int>(action.microbatch) < microbatches_) actions_.push_back(action);
  }

  int microbatches_;
  std::vector<Action>& actions_;
  int stage_[2] = {};
  int forwards_[2] = {};
  int input_gradients_[2] = {};
  int weight_gradients_[2] = {};
};

void fill_rank(const ScheduleRequest& request, int rank, std::vector<Action>& actions) {
  const int ranks = request.pipeline_ranks;
  const int microbatches = std::max(request.microbatches, 2 * ranks - 1);
  RankOrder order(request, rank, actions);
  for (int count = 0; count < 2 * (ranks - rank) - 1; ++count) order.forward(0);
  for (int count = 0; count < rank; ++count) {
    order.forward(1);
    order.forward(0);
  }
  for (int count = 0; count < ranks - rank; ++count) {
    order.forward(1);
    order.backward(1);
  }
  while (order.forwards(1) < order.forwards(0) || order.forwards(0) < microbatches) {
    if (order.forwards(0) < microbatches) order.forward(0);
    order.backward(0);
    order.forward(1);
    order.backward(1);
  }
  for (int count = 0; count < rank; ++count) {
    order.input_gradient(0);
    order.input_gradient(1);
  }
  for (int count = 0; count < ranks - rank; ++count) order.backward(0);
  while (order.owes_weight_gradient(1)) order.weight_gradient(1);
  while (order.owes_weight_gradient(0)) order.weight_gradient(0);
}

Program fixed_order(const ScheduleRequest& request) {
  Program program = empty_v("zbv", request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    fill_rank(request, rank, program.ranks[static_cast<std::size_t>(rank)]);
  }
  return program;
}

Program generate(const ScheduleRequest& request) {
  if (request.variant != "greedy") return fixed_order(request);
  BlockSearch search;
  search.empty = empty_v("zbv", request);
  search.chunks = 2;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule.limit = 4 * request.pipeline_ranks;
  search.goal.span_first = true;
  search.rivals.push_back(fixed_order(request));
  return search_blocks(search, request);
}

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  return refuse_all_but_two_chunks("zbv", request);
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const bool equal = times.forward == times.weight_gradient && times.forward == times.input_gradient();
  const bool exact =
      times.latency == 0 && equal && request.microbatches >= 2 * ranks - 1 && request.variant != "greedy";
  if (!exact) return std::nullopt;
  return 2 * Ticks{request.microbatches} * (times.forward + times.backward) + (ranks - 1) * times.forward;
}

}  // namespace

ScheduleInfo zbv_schedule() {
  ScheduleInfo info;
  info.name = "zbv";
  info.summary = "zero bubble on the V map: no idling between first and last action, with 1f1b's memory on every rank";
  info.source = "Zero Bubble, arXiv 2401.10241, section 6; ScheduleZBVZeroBubble of PyTorch";
  info.constraints = "two chunks per rank";
  info.peak_in_flight = "2 p chunks";
  info.makespan = "2 m (F + B) + (p - 1) F at c = 0 for F = I = W, m >= 2 p - 1; F, B of a chunk";
  info.where_to_use = "1f1b's memory and next to no bubble, links fast enough for twice the messages";
  info.uses_chunks = true;
  info.uses_times = true;
  info.default_chunks = 2;
  info.variants = {"fixed", "greedy"};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
