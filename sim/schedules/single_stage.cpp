#include "sim/schedules/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace flopcast {

Program one_forward_one_backward(std::string_view schedule, const ScheduleRequest& request,
                                 const std::vector<int>& warmup) {
  Program program = empty_loop(schedule, request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    const auto own = static_cast<std::size_t>(rank);
    alternate(
        {.passes = static_cast<std::size_t>(request.microbatches), .warmup = static_cast<std::size_t>(warmup[own])},
        [rank](std::size_t pass) { return forward_action(StageIndex(rank), MicrobatchIndex(pass)); },
        [rank](std::size_t pass) { return backward_action(StageIndex(rank), MicrobatchIndex(pass)); },
        program.ranks[own]);
  }
  return program;
}

std::vector<int> shortest_warmup(int pipeline_ranks) {
  std::vector<int> warmup;
  warmup.reserve(static_cast<std::size_t>(pipeline_ranks));
  for (int rank = 0; rank < pipeline_ranks; ++rank) warmup.push_back(pipeline_ranks - 1 - rank);
  return warmup;
}

std::vector<int> eager_warmup(int pipeline_ranks) {
  std::vector<int> warmup = shortest_warmup(pipeline_ranks);
  for (int& forwards : warmup) forwards *= 2;
  return warmup;
}

std::optional<Ticks> one_forward_one_backward_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks microbatches = request.microbatches;
  const Ticks waits = (std::max<Ticks>(0, microbatches - 2) * (ranks - 1) + ranks - 1) / ranks;
  return (microbatches + ranks - 1) * (times.forward + times.backward) + 2 * times.latency * (ranks - 1 + waits);
}

std::optional<Ticks> eager_1f1b_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks both = times.forward + times.backward;
  if (2 * times.latency > both) return std::nullopt;
  const Ticks ranks = request.pipeline_ranks;
  return (request.microbatches + ranks - 1) * both + 2 * (ranks - 1) * times.latency;
}

// Naive model parallelism: one microbatch at a time through all ranks and back. This is the baseline of GPipe (Huang
// 2018, arXiv 1811.06965, figure 2b) and the result of moving layers to devices by hand.
//
// Rule: every rank executes F_k, B_k for k = 0 .. m-1.
// Peak in flight: 1 on every rank.
// Makespan: m [p (F + B) + 2 (p - 1) c]; bubble_fraction (p - 1) / p at c = 0, so one half on two ranks.
// Constraints: one chunk per rank.

namespace {

Program generate_naive(const ScheduleRequest& request) {
  const std::vector<int> no_warmup(static_cast<std::size_t>(request.pipeline_ranks), 0);
  return one_forward_one_backward("naive", request, no_warmup);
}

std::optional<Ticks> naive_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  return request.microbatches * (ranks * (times.forward + times.backward) + 2 * (ranks - 1) * times.latency);
}

}  // namespace

ScheduleInfo naive_schedule() {
  ScheduleInfo info;
  info.name = "naive";
  info.summary = "one microbatch at a time through all ranks and back";
  info.source = "the baseline of GPipe, arXiv 1811.06965, figure 2b";
  info.peak_in_flight = "1";
  info.makespan = "m (p (F + B) + 2 (p - 1) c)";
  info.where_to_use = "as a baseline, or to examine one microbatch at a time; never for speed";
  info.generate = generate_naive;
  info.closed_form_makespan = naive_makespan;
  return info;
}

// GPipe, fill and drain: Huang 2018, arXiv 1811.06965, section 2.2.
//
// Rule: F_0 .. F_{m-1}, then all backwards: in the same order (fifo, as torch.distributed.pipelining does) or from the
// last microbatch to the first (lifo, as torchgpipe does: the order in which autograd unwinds).
// Peak in flight: m on every rank.
// Makespan: (m + p - 1)(F + B) + 2 (p - 1) c for both variants and any c; bubble_fraction (p - 1) / (m + p - 1) at c =
// 0. Uneven stages: sum F + sum B + (m - 1)(max F + max B).
// Constraints: one chunk per rank; bfs generalises it to several.

namespace {

Program generate_gpipe(const ScheduleRequest& request) {
  Program program = empty_loop("gpipe", request);
  const int count = request.microbatches;
  const bool last_in_first_out = request.variant == "lifo";
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[rank];
    for (int index = 0; index < count; ++index)
      actions.push_back(forward_action(StageIndex(rank), MicrobatchIndex(index)));
    for (int index = 0; index < count; ++index) {
      const MicrobatchIndex microbatch(last_in_first_out ? count - 1 - index : index);
      actions.push_back(backward_action(StageIndex(rank), microbatch));
    }
  }
  return program;
}

// (m + p - 1)(F + B) + 2 (p - 1) c.
Ticks fill_and_drain_makespan(const ScheduleRequest& request, Ticks passes, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  return (passes + ranks - 1) * (times.forward + times.backward) + 2 * (ranks - 1) * times.latency;
}

std::optional<Ticks> gpipe_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  return fill_and_drain_makespan(request, request.microbatches, times);
}

}  // namespace

ScheduleInfo gpipe_schedule() {
  ScheduleInfo info;
  info.name = "gpipe";
  info.summary = "all forwards, then all backwards";
  info.source = "GPipe, arXiv 1811.06965, section 2.2";
  info.peak_in_flight = "m";
  info.makespan = "(m + p - 1)(F + B) + 2 (p - 1) c";
  info.where_to_use = "few microbatches, memory to spare (or recomputation), slow links between ranks";
  info.variants = {"fifo", "lifo"};
  info.generate = generate_gpipe;
  info.closed_form_makespan = gpipe_makespan;
  return info;
}

// TeraPipe, token-level pipeline parallelism: Li et al. 2021, arXiv 2102.07988, section 3.
//
// Rule: a microbatch's tokens are cut into K slices that pass through the stages one after the other. Causal attention
// allows this, because a slice needs only the slices before it. All slices of all microbatches run forward in order,
// then backward in the opposite order, so that the gradients of a slice's keys are complete when its turn comes. Slice
// j of microbatch k is the program's unit k K + j (Program::slices_per_microbatch).
// Memory: m microbatches on every rank.
// Makespan: (m K + p - 1)(F + B) + 2 (p - 1) c with the times of one slice; bubble_fraction (p - 1) / (m K + p - 1).
// Left out: slices of unequal lengths, which the paper's dynamic program chooses so that later slices, which attend to
// more tokens, are shorter.
// Constraints: none.

namespace {

constexpr int kDefaultSlices = 4;

int slices_of(const ScheduleRequest& request) {
  return request.slices.value_or(kDefaultSlices);
}

std::optional<ScheduleRefusal> refuse_terapipe(const ScheduleRequest& request) {
  const int slices = slices_of(request);
  if (slices < 1) {
    return ScheduleRefusal{.problem = fmt::format("terapipe cannot cut a microbatch into {} slices", slices),
                           .help = "at least 1"};
  }
  const std::size_t actions =
      2 * static_cast<std::size_t>(request.pipeline_ranks) * static_cast<std::size_t>(request.microbatches);
  if (static_cast<std::size_t>(slices) > kMaxActions / actions) {
    return ScheduleRefusal{
        .problem = fmt::format("{} slices of {} microbatches on {} stages make more actions than fit into memory",
                               slices, request.microbatches, request.pipeline_ranks),
        .help = fmt::format("at most {} slices", kMaxActions / actions)};
  }
  return std::nullopt;
}

Program generate_terapipe(const ScheduleRequest& request) {
  ScheduleRequest sliced = request;
  sliced.microbatches *= slices_of(request);
  Program program = empty_loop("terapipe", sliced);
  program.slices_per_microbatch = slices_of(request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    std::vector<Action>& actions = program.ranks[rank];
    for (int unit = 0; unit < sliced.microbatches; ++unit)
      actions.push_back(forward_action(StageIndex(rank), MicrobatchIndex(unit)));
    for (int unit = sliced.microbatches; unit-- > 0;)
      actions.push_back(backward_action(StageIndex(rank), MicrobatchIndex(unit)));
  }
  return program;
}

std::optional<Ticks> terapipe_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  return fill_and_drain_makespan(request, Ticks{request.microbatches} * slices_of(request), times);
}

}  // namespace

ScheduleInfo terapipe_schedule() {
  ScheduleInfo info;
  info.name = "terapipe";
  info.summary = "gpipe over token slices of the microbatches: a bubble K times smaller";
  info.source = "TeraPipe, arXiv 2102.07988, section 3";
  info.constraints = "at least one slice; 4 by default";
  info.peak_in_flight = "m K slices";
  info.makespan = "(m K + p - 1)(F + B) + 2 (p - 1) c, F and B of one slice";
  info.where_to_use = "long sequences of causal models with few microbatches; synchronous";
  info.reads = {&ScheduleRequest::slices};
  info.refuse = refuse_terapipe;
  info.generate = generate_terapipe;
  info.closed_form_makespan = terapipe_makespan;
  return info;
}

// 1F1B with a flush (PipeDream-Flush): Narayanan 2021, arXiv 2006.09503, section 3.2; the early backward of DAPPLE,
// arXiv 2007.01045; the schedule of Megatron-LM without interleaving, arXiv 2104.04473, section 2.2.1.
//
// Rule: rank r executes min(m, p - 1 - r) forwards, then one forward and one backward in turn, then the remaining
// backwards.
// Peak in flight: min(m, p - r).
// Makespan: (m + p - 1)(F + B) + 2c [(p - 1) + ceil(max(0, m - 2)(p - 1) / p)]: latency is exposed once per microbatch,
// not once per step. bubble_fraction (p - 1) / (m + p - 1) at c = 0. For uneven stages no closed form is exact.
// Constraints: one chunk per rank. Fewer microbatches than ranks are allowed, as in Megatron-LM (PyTorch rejects them).

ScheduleInfo one_forward_one_backward_schedule() {
  ScheduleInfo info;
  info.name = "1f1b";
  info.summary = "one forward, one backward: the bubble of gpipe with at most p microbatches in flight";
  info.source = "PipeDream-Flush, arXiv 2006.09503, section 3.2";
  info.peak_in_flight = "min(m, p - r)";
  info.makespan = "(m + p - 1)(F + B) + 2c ((p - 1) + ceil(max(0, m - 2)(p - 1) / p))";
  info.where_to_use = "the default: many microbatches in bounded memory, transfers short compared with a stage";
  info.generate = [](const ScheduleRequest& request) {
    return one_forward_one_backward("1f1b", request, shortest_warmup(request.pipeline_ranks));
  };
  info.closed_form_makespan = one_forward_one_backward_makespan;
  return info;
}

// Eager 1F1B: Zhuang 2022, arXiv 2211.05322 (overlap-friendly 1F1B of Alpa); policy PB of DAPPLE, arXiv 2007.01045.
//
// Rule: 1F1B with a warm-up of min(m, 2 (p - 1 - r)) forwards, so that an activation is in transit while its consumer
// still computes.
// Peak in flight: min(m, 2 (p - 1 - r) + 1): almost twice 1F1B's on the first rank, the price of hiding the latency.
// Makespan: (m + p - 1)(F + B) + 2 (p - 1) c, exact while 2c <= F + B. bubble_fraction (p - 1) / (m + p - 1) at c = 0.
// Constraints: one chunk per rank.

ScheduleInfo eager_1f1b_schedule() {
  ScheduleInfo info;
  info.name = "eager-1f1b";
  info.summary = "1f1b with a longer warm-up that hides the latency between ranks";
  info.source = "Alpa's overlap-friendly 1F1B, arXiv 2211.05322";
  info.peak_in_flight = "min(m, 2 (p - 1 - r) + 1)";
  info.makespan = "(m + p - 1)(F + B) + 2 (p - 1) c while 2c <= F + B";
  info.where_to_use = "1f1b across slow links, with memory for twice the activations";
  info.generate = [](const ScheduleRequest& request) {
    return one_forward_one_backward("eager-1f1b", request, eager_warmup(request.pipeline_ranks));
  };
  info.closed_form_makespan = eager_1f1b_makespan;
  return info;
}

// DAPPLE's early-backward schedule: Fan et al. 2021, arXiv 2007.01045, section 3.2 (policies PA and PB).
//
// Rule: rank r runs K_r forwards before its first backward, then one forward and one backward in turn; D is the number
// of microbatches that fit into memory.
//   pa  K_r = min(p - r, D)            1f1b if memory allows it
//   pb  K_r = min(2 (p - r) - 1, D)    eager-1f1b if memory allows it: hides the transfers
// Left out: DAPPLE's planner, which flopcast's planner replaces.
// Memory: min(m, K_r) activations.
// Makespan: D = 1: m (p (F + B) + 2 (p - 1) c), one microbatch after the other; pa with D >= p: that of 1f1b; pb with
// D >= 2p - 1: that of eager-1f1b.
// Constraints: D is at least 1; unlimited by default.

namespace {

bool is_policy_b(const ScheduleRequest& request) {
  return request.variant == "pb";
}

int dapple_limit(const ScheduleRequest& request) {
  return request.memory_limit.value_or(request.microbatches);
}

std::optional<ScheduleRefusal> refuse_dapple(const ScheduleRequest& request) {
  if (dapple_limit(request) >= 1) return std::nullopt;
  return ScheduleRefusal{.problem = fmt::format("dapple cannot run with a memory limit of {}", *request.memory_limit),
                         .help = "at least 1 microbatch"};
}

Program generate_dapple(const ScheduleRequest& request) {
  std::vector<int> warmup =
      is_policy_b(request) ? eager_warmup(request.pipeline_ranks) : shortest_warmup(request.pipeline_ranks);
  for (int& forwards : warmup) forwards = std::min(forwards, dapple_limit(request) - 1);
  return one_forward_one_backward("dapple", request, warmup);
}

std::optional<Ticks> dapple_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks both = times.forward + times.backward;
  const Ticks transfers = 2 * (ranks - 1) * times.latency;
  const Ticks longest_warmup = is_policy_b(request) ? 2 * ranks - 1 : ranks;
  const Ticks limit = dapple_limit(request);
  if (limit == 1) return request.microbatches * (ranks * both + transfers);
  if (limit < std::min<Ticks>(longest_warmup, request.microbatches)) return std::nullopt;
  if (!is_policy_b(request)) return one_forward_one_backward_makespan(request, times);
  if (2 * times.latency > both) return std::nullopt;
  return (request.microbatches + ranks - 1) * both + transfers;
}

}  // namespace

ScheduleInfo dapple_schedule() {
  ScheduleInfo info;
  info.name = "dapple";
  info.summary = "1f1b or eager-1f1b with a warm-up that fits into memory";
  info.source = "DAPPLE, arXiv 2007.01045, section 3.2";
  info.constraints = "a memory limit of at least 1 microbatch";
  info.peak_in_flight = "min(m, D, p - r), pb min(m, D, 2 (p - r) - 1)";
  info.makespan = "D = 1: m (p (F + B) + 2 (p - 1) c); D >= p: that of 1f1b; pb, D >= 2p - 1: that of eager-1f1b";
  info.where_to_use = "1f1b limited by the memory that remains for activations";
  info.reads = {&ScheduleRequest::memory_limit};
  info.variants = {"pa", "pb"};
  info.refuse = refuse_dapple;
  info.generate = generate_dapple;
  info.closed_form_makespan = dapple_makespan;
  return info;
}

}  // namespace flopcast
