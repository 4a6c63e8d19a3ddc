#include "sim/schedules/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/program/request.hpp"
#include "sim/search/block_search.hpp"
#include "sim/search/order_times.hpp"

namespace flopcast {

namespace {

std::optional<ScheduleRefusal> refuse_all_but_two_chunks(std::string_view name, const ScheduleRequest& request) {
  if (request.chunks == 2) return std::nullopt;
  return ScheduleRefusal{.problem = fmt::format("{} has two chunks per rank, not {}", name, request.chunks),
                         .help = "use 2 chunks: the V runs down the ranks and back once"};
}

// The schedules of Qi 2024, arXiv 2405.15362, section 3: the best order found on the V-shaped placement
// (sim/search/block_search.hpp) for the request's times while no rank holds more than `most_in_flight` activations,
// each of one chunk and held until its weight gradient. `split`: input and weight gradients are separate actions.
Program search_v(std::string_view schedule, const ScheduleRequest& request, bool split, int most_in_flight) {
  BlockSearch search;
  search.empty = empty_zigzag(schedule, request);
  search.chunks = 2;
  search.split = split;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule.limit = 2 * most_in_flight;
  return search_blocks(search, request);
}

// The common part of their catalogue entries: all but names, figures and generator.
ScheduleInfo v_search_info() {
  ScheduleInfo info;
  info.source = "arXiv 2405.15362, section 3; flopcast's search over its building blocks";
  info.constraints = "two chunks per rank";
  info.makespan = "no closed form";
  info.uses_chunks = true;
  info.uses_times = true;
  info.default_chunks = 2;
  return info;
}

}  // namespace

// 1F1B-V: Qi 2024, arXiv 2405.15362: the V-shaped placement with whole backward passes.
//
// Rule: among the building blocks on the V-shaped placement with whole backward passes, the one whose squeezed order
// ends first for the given times within the memory below (search_v).
// Peak in flight: max(4, ceil(3 p / 2)) chunks on any rank: three quarters of 1f1b's first rank.
// Makespan: no closed form. The bubble exceeds that of 1f1b in most cases, the price of the memory saved.
// Constraints: two chunks per rank.

ScheduleInfo one_f_one_b_v_schedule() {
  ScheduleInfo info = v_search_info();
  info.name = "1f1b-v";
  info.summary = "1f1b on a V-shaped placement: every rank holds three quarters of what 1f1b's first rank holds";
  info.peak_in_flight = "max(4, ceil(3 p / 2)) chunks";
  info.where_to_use = "equal memory on all ranks; links fast enough for twice the messages";
  info.refuse = [](const ScheduleRequest& request) { return refuse_all_but_two_chunks("1f1b-v", request); };
  info.generate = [](const ScheduleRequest& request) {
    return search_v("1f1b-v", request, false, std::max(4, (3 * request.pipeline_ranks + 1) / 2));
  };
  return info;
}

// V-Half: Qi 2024, arXiv 2405.15362, section 3.
//
// Rule: among the building blocks on the V-shaped placement with split backward passes, the one whose squeezed order
// ends first for the given times within the memory below (search_v). The paper fixes one block for equal times.
// Peak in flight: 2 floor((p + 2) / 2) chunks on any rank (an activation is held until W): half of 1f1b's first rank
// (the paper's ceil((p + 2) / 2) microbatches).
// Makespan: no closed form; the bubble is about half of 1f1b's for equal times.
// Constraints: two chunks per rank.

ScheduleInfo v_half_schedule() {
  ScheduleInfo info = v_search_info();
  info.name = "v-half";
  info.summary = "split backward passes on a V-shaped placement, with half of 1f1b's activations";
  info.peak_in_flight = "2 floor((p + 2) / 2) chunks";
  info.where_to_use = "activations that exceed the memory: half as many, for a bubble like 1f1b's";
  info.refuse = [](const ScheduleRequest& request) { return refuse_all_but_two_chunks("v-half", request); };
  info.generate = [](const ScheduleRequest& request) {
    return search_v("v-half", request, true, 2 * ((request.pipeline_ranks + 2) / 2));
  };
  return info;
}

// V-Min: Qi 2024, arXiv 2405.15362, section 3.
//
// Rule: among the building blocks on the V-shaped placement with split backward passes, the one whose squeezed order
// ends first for the given times within the memory below (search_v). The paper fixes one block for equal times.
// Peak in flight: 2 floor((p + 4) / 3) chunks on any rank (an activation is held until W): about a third of 1f1b's
// first rank (the paper's ceil((p + 4) / 3) microbatches).
// Makespan: no closed form; the bubble is about two thirds of 1f1b's for equal times, and grows with m for unequal
// ones.
// Constraints: two chunks per rank.

ScheduleInfo v_min_schedule() {
  ScheduleInfo info = v_search_info();
  info.name = "v-min";
  info.summary = "split backward passes on a V-shaped placement, with a third of 1f1b's activations";
  info.peak_in_flight = "2 floor((p + 4) / 3) chunks";
  info.where_to_use = "activations that exceed the memory: a third as many, for a bubble above 1f1b's";
  info.refuse = [](const ScheduleRequest& request) { return refuse_all_but_two_chunks("v-min", request); };
  info.generate = [](const ScheduleRequest& request) {
    return search_v("v-min", request, true, 2 * ((request.pipeline_ranks + 4) / 3));
  };
  return info;
}

// Automatic V: zb-auto's search on the V-shaped placement; the schedules of Qi 2024, arXiv 2405.15362, for any memory
// limit.
//
// Rule: the shortest order found under the memory limit, which counts microbatches of two activations each: full
// (default) holds an activation until W, as in flopcast's memory reports; half frees one half of it at I, as the
// authors' program counts; chunks is half with a limit that counts activations of one chunk, so that it can be odd.
// Peak in flight: the limit, or up to twice the limit with half and chunks; without a limit at most 2 m chunks.
// Makespan: no closed form.
// Constraints: two chunks per rank.

namespace {

Program generate_v_auto(const ScheduleRequest& request) {
  BlockSearch search;
  search.empty = empty_zigzag("v-auto", request);
  search.chunks = 2;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule = rule_of_variant(request, 2);
  return search_blocks(search, request);
}

std::optional<ScheduleRefusal> refuse_v_auto(const ScheduleRequest& request) {
  if (auto refusal = refuse_all_but_two_chunks("v-auto", request)) return refusal;
  constexpr int kFewestChunks = 2;
  if (request.variant == "chunks" && request.memory_limit && *request.memory_limit < kFewestChunks) {
    return ScheduleRefusal{
        .problem = fmt::format("v-auto:chunks cannot run with a memory limit of {}", *request.memory_limit),
        .help = "at least 2 chunks, which is one microbatch"};
  }
  return refuse_memory_limit("v-auto", request);
}

}  // namespace

ScheduleInfo v_auto_schedule() {
  ScheduleInfo info;
  info.name = "v-auto";
  info.summary = "the shortest split order found on a V-shaped placement for the given times and memory limit";
  info.source = "arXiv 2405.15362, section 3; flopcast's search over its building blocks";
  info.constraints =
      "two chunks per rank; a memory limit, if any, of at least 1 microbatch (with v-auto:chunks, 2 chunks)";
  info.peak_in_flight = "the memory limit; with v-auto:half and v-auto:chunks up to twice that";
  info.makespan = "no closed form";
  info.where_to_use = "a memory limit between those of v-min and zbv";
  info.uses_chunks = true;
  info.uses_times = true;
  info.reads = {&ScheduleRequest::memory_limit};
  info.variants = {"full", "half", "chunks"};
  info.default_chunks = 2;
  info.refuse = refuse_v_auto;
  info.generate = generate_v_auto;
  return info;
}

// ZBV: Qi 2023, arXiv 2401.10241, section 6.
//
// Rule (fixed, default): ScheduleZBVZeroBubble of torch.distributed.pipelining. On the V-shaped placement, with F0 I0
// W0 the rank's actions on the way down and F1 I1 W1 those on the way back, rank r executes 2 (p - r) - 1 times F0; r
// times F1 F0; p - r times F1 I1 W1; then F0 I0 W0 F1 I1 W1 until no forward remains; r times I0 I1; p - r times I0 W0;
// then the remaining W1 and W0. The order is made for max(m, 2 p - 1) microbatches, and surplus ones are left out.
// Rule (greedy): the order with the shortest span found for the given times within the same memory
// (sim/search/block_search.hpp); "zero bubble" refers to this span, from a rank's first start to its last end. Its
// makespan is at most that of the fixed order.
// Peak in flight: 2 p chunks, as much as p microbatches; an activation is held until W.
// Makespan, with times per chunk: 2 m (F + B) + (p - 1) F, exact at c = 0 for F = I = W and m >= 2 p - 1; no rank then
// idles between its first and its last action.
// Constraints: two chunks per rank.

namespace {

constexpr ChunkIndex kDescending(0);
constexpr ChunkIndex kAscending(1);

// One rank's order, without the surplus microbatches.
class RankOrder {
 public:
  RankOrder(const ScheduleRequest& request, RankIndex rank, std::vector<Action>& actions)
      : microbatches_(request.microbatches), actions_(actions) {
    for (const ChunkIndex chunk : {kDescending, kAscending})
      stage_[chunk] = v_stage(request.pipeline_ranks, rank, chunk);
  }

  void forward(ChunkIndex chunk) { push(forward_action(stage_[chunk], MicrobatchIndex(forwards_[chunk]++))); }
  void input_gradient(ChunkIndex chunk) {
    push(input_gradient_action(stage_[chunk], MicrobatchIndex(input_gradients_[chunk]++)));
  }
  void weight_gradient(ChunkIndex chunk) {
    push(weight_gradient_action(stage_[chunk], MicrobatchIndex(weight_gradients_[chunk]++)));
  }
  void backward(ChunkIndex chunk) {
    input_gradient(chunk);
    weight_gradient(chunk);
  }
  int forwards(ChunkIndex chunk) const { return forwards_[chunk]; }
  bool owes_weight_gradient(ChunkIndex chunk) const { return weight_gradients_[chunk] < input_gradients_[chunk]; }

 private:
  void push(const Action& action) {
    if (static_cast<int>(action.microbatch) < microbatches_) actions_.push_back(action);
  }

  int microbatches_;
  std::vector<Action>& actions_;
  StageIndex stage_[2];
  int forwards_[2] = {};
  int input_gradients_[2] = {};
  int weight_gradients_[2] = {};
};

void fill_rank(const ScheduleRequest& request, RankIndex rank, std::vector<Action>& actions) {
  const int ranks = request.pipeline_ranks;
  const int microbatches = std::max(request.microbatches, 2 * ranks - 1);
  RankOrder order(request, rank, actions);
  for (int count = 0; count < 2 * (ranks - rank) - 1; ++count) order.forward(kDescending);
  for (int count = 0; count < rank; ++count) {
    order.forward(kAscending);
    order.forward(kDescending);
  }
  for (int count = 0; count < ranks - rank; ++count) {
    order.forward(kAscending);
    order.backward(kAscending);
  }
  while (order.forwards(kAscending) < order.forwards(kDescending) || order.forwards(kDescending) < microbatches) {
    if (order.forwards(kDescending) < microbatches) order.forward(kDescending);
    order.backward(kDescending);
    order.forward(kAscending);
    order.backward(kAscending);
  }
  for (int count = 0; count < rank; ++count) {
    order.input_gradient(kDescending);
    order.input_gradient(kAscending);
  }
  for (int count = 0; count < ranks - rank; ++count) order.backward(kDescending);
  while (order.owes_weight_gradient(kAscending)) order.weight_gradient(kAscending);
  while (order.owes_weight_gradient(kDescending)) order.weight_gradient(kDescending);
}

Program fixed_order(const ScheduleRequest& request) {
  Program program = empty_zigzag("zbv", request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    fill_rank(request, RankIndex(rank), program.ranks[rank]);
  }
  return program;
}

Program generate_zbv(const ScheduleRequest& request) {
  if (request.variant != "greedy") return fixed_order(request);
  BlockSearch search;
  search.empty = empty_zigzag("zbv", request);
  search.chunks = 2;
  search.shapes = v_shapes(request.pipeline_ranks);
  search.rule.limit = 4 * request.pipeline_ranks;
  search.goal.span_first = true;
  search.rivals.push_back(fixed_order(request));
  return search_blocks(search, request);
}

std::optional<Ticks> zbv_makespan(const ScheduleRequest& request, const UniformTimes& times) {
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
  info.summary =
      "zero bubble on a V-shaped placement: no idle time between first and last action, 1f1b's memory on all ranks";
  info.source = "Zero Bubble, arXiv 2401.10241, section 6; ScheduleZBVZeroBubble of PyTorch";
  info.constraints = "two chunks per rank";
  info.peak_in_flight = "2 p chunks";
  info.makespan = "2 m (F + B) + (p - 1) F at c = 0 for F = I = W, m >= 2 p - 1; F, B of a chunk";
  info.where_to_use = "1f1b's memory with almost no bubble, links fast enough for twice the messages";
  info.uses_chunks = true;
  info.uses_times = true;
  info.default_chunks = 2;
  info.variants = {"fixed", "greedy"};
  info.refuse = [](const ScheduleRequest& request) { return refuse_all_but_two_chunks("zbv", request); };
  info.generate = generate_zbv;
  info.closed_form_makespan = zbv_makespan;
  return info;
}

// Hanayo, wave pipeline parallelism: Liu et al. 2023, arXiv 2308.15762, section 3.
//
// Rule: one copy of the model zigzags over the ranks in W waves, each with two chunks per rank; at a turn, two adjacent
// stages share a rank and nothing is sent. Every rank runs backwards as soon as they are ready, and otherwise the
// forward of the earliest microbatch (sim/search/order_times.hpp).
//   steady  a rank holds the activations of at most 2 W D chunks, those of D microbatches, p unless a memory limit is
//           given; the order for F = B without latency, in which waves follow each other without a gap (the default)
//   rounds  at most D microbatches are in flight; the order for B = 2F, in which waves stop between rounds of p
//           microbatches if D = p. D = 2p fills the gaps.
// Memory: at most 2 W min(m, D) chunks.
// Makespan at c = 0, steady: for F = B of a chunk, p | m and D >= p: (2 W m + p - 1)(F + B), idle fraction (p - 1) / (2
// W m + p - 1). No closed form is exact otherwise. The paper gives (2p - 2) / (3p W + p - 1) for m = p and B = 2F; both
// orders stay below this or exceed it by at most 0.02. For B = 2F and m > p the order is worse than at F = B, and with
// W = 1 and D = p it is slower than 1F1B of the same memory from m = 4p on (p = 4, m = 16: idle fractions 0.232 and
// 0.158).
// Constraints: an even number of chunks, 2W.

namespace {

constexpr std::string_view kRounds = "rounds";

int hanayo_limit(const ScheduleRequest& request) {
  return request.memory_limit.value_or(request.pipeline_ranks);
}

std::optional<ScheduleRefusal> refuse_hanayo(const ScheduleRequest& request) {
  if (hanayo_limit(request) < 1) {
    return ScheduleRefusal{.problem = fmt::format("hanayo cannot run with a memory limit of {}", hanayo_limit(request)),
                           .help = "at least 1 microbatch"};
  }
  if (request.chunks % 2 == 0) return std::nullopt;
  return ScheduleRefusal{
      .problem = fmt::format("hanayo needs two chunks per rank for each wave, and {} is odd", request.chunks),
      .help = fmt::format("an even number of chunks, such as {}", request.chunks + 1)};
}

Program generate_hanayo(const ScheduleRequest& request) {
  Program program = empty_zigzag("hanayo", request);
  GreedyRule rule;
  rule.microbatches = request.microbatches;
  if (request.variant == kRounds) {
    rule.most_in_flight = std::min(hanayo_limit(request), request.microbatches);
  } else {
    rule.backward = rule.forward;
    rule.most_in_flight = request.microbatches;
    rule.most_held = request.chunks * std::min(hanayo_limit(request), request.microbatches);
  }
  fill_greedily(program, rule);
  return program;
}

std::optional<Ticks> hanayo_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks microbatches = request.microbatches;
  if (request.variant == kRounds || times.latency != 0 || times.forward != times.backward) return std::nullopt;
  if (microbatches % ranks != 0 || hanayo_limit(request) < ranks) return std::nullopt;
  return (microbatches * request.chunks + ranks - 1) * (times.forward + times.backward);
}

}  // namespace

ScheduleInfo hanayo_schedule() {
  ScheduleInfo info;
  info.name = "hanayo";
  info.summary = "waves: the model zigzags over the ranks v/2 times";
  info.source = "Hanayo, arXiv 2308.15762, section 3";
  info.constraints = "an even number of chunks, two for each wave; a memory limit of at least 1";
  info.peak_in_flight = "at most v min(m, p) chunks, or v D";
  info.makespan =
      "p | m, F = B, c = 0: (m v + p - 1)(F + B); idle fraction about (2p - 2) / (3p v/2 + p - 1) for m = p, B = 2F";
  info.where_to_use = "few microbatches, links fast enough for v times the messages";
  info.uses_chunks = true;
  info.reads = {&ScheduleRequest::memory_limit};
  info.default_chunks = 2;
  info.variants = {"steady", kRounds};
  info.refuse = refuse_hanayo;
  info.generate = generate_hanayo;
  info.closed_form_makespan = hanayo_makespan;
  return info;
}

}  // namespace flopcast
