#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/schedules/catalogue.hpp"

namespace flopcast {

// The schedules by family, one file each. The rule, source and figures of a schedule are documented above its entry.

// single_stage.cpp: one stage per rank; these differ only in how many forwards a rank runs ahead.
ScheduleInfo naive_schedule();
ScheduleInfo gpipe_schedule();
ScheduleInfo terapipe_schedule();
ScheduleInfo one_forward_one_backward_schedule();
ScheduleInfo eager_1f1b_schedule();
ScheduleInfo dapple_schedule();

// zero_bubble.cpp: one stage per rank, weight gradients as separate actions.
ScheduleInfo zb_h1_schedule();
ScheduleInfo zb_h2_schedule();
ScheduleInfo zb_auto_schedule();

// looped.cpp: several stages per rank, which loop over the ranks.
ScheduleInfo bfs_schedule();
ScheduleInfo interleaved_schedule();
ScheduleInfo interleaved_zb_schedule();
ScheduleInfo gis_schedule();

// v_shaped.cpp: several stages per rank, which zigzag over the ranks.
ScheduleInfo one_f_one_b_v_schedule();
ScheduleInfo v_half_schedule();
ScheduleInfo v_min_schedule();
ScheduleInfo v_auto_schedule();
ScheduleInfo zbv_schedule();
ScheduleInfo hanayo_schedule();

// bidirectional.cpp: microbatches enter from both ends at once.
ScheduleInfo chimera_schedule();
ScheduleInfo dualpipe_schedule();
ScheduleInfo dualpipev_schedule();

// asynchronous.cpp: weights change while the pipeline stays full.
ScheduleInfo pipedream_schedule();
ScheduleInfo pipedream_2bw_schedule();
ScheduleInfo pipemare_schedule();

// Shared by several families.

/// The order of one rank that most schedules follow: `warmup` forwards, then one forward and one backward pass in turn,
/// then the remaining backward passes. If backward passes are split, each is an input gradient followed, after the
/// first `delay` of them, by the oldest pending weight gradient; the remaining weight gradients come last.
struct Alternation {
  std::size_t passes = 0;  ///< in each direction
  std::size_t warmup = 0;
  std::optional<std::size_t> delay = std::nullopt;  ///< absent: whole backward passes
};

/// `forward` and `backward` return the action of pass 0 .. passes - 1: F, and B or I.
template <class Forward, class Backward>
void alternate(const Alternation& order, const Forward& forward, const Backward& backward,
               std::vector<Action>& actions) {
  const std::size_t warmup = std::min(order.warmup, order.passes);
  const auto push_weight_gradient = [&](std::size_t pass) {
    actions.push_back(backward(pass));
    actions.back().kind = ActionKind::kWeightGradient;
  };
  actions.reserve((order.delay ? 3 : 2) * order.passes);
  for (std::size_t pass = 0; pass < warmup; ++pass) actions.push_back(forward(pass));
  for (std::size_t pass = 0; pass < order.passes; ++pass) {
    if (warmup + pass < order.passes) actions.push_back(forward(warmup + pass));
    actions.push_back(backward(pass));
    if (order.delay && pass >= *order.delay) push_weight_gradient(pass - *order.delay);
  }
  if (!order.delay) return;
  const std::size_t left = std::min(*order.delay, order.passes);
  for (std::size_t pass = order.passes - left; pass < order.passes; ++pass) push_weight_gradient(pass);
}

/// alternate() with one stage per rank and whole backward passes. `warmup[r]` belongs to rank r.
Program one_forward_one_backward(std::string_view schedule, const ScheduleRequest& request,
                                 const std::vector<int>& warmup);

/// p - 1 - r: just enough forwards to reach the last rank before the first backward is due.
std::vector<int> shortest_warmup(int pipeline_ranks);
/// Twice that: enough to hide the latency to the next rank and back.
std::vector<int> eager_warmup(int pipeline_ranks);

/// The exact makespan of one_forward_one_backward with the shortest warm-up:
/// (m + p - 1)(F + B) + 2c [(p - 1) + ceil(max(0, m - 2)(p - 1) / p)]. The steady state costs 2c (p - 1) / p per
/// microbatch, because a rank that alternates waits for the round trip to its neighbour.
std::optional<Ticks> one_forward_one_backward_makespan(const ScheduleRequest& request, const UniformTimes& times);

/// Same with the eager warm-up: (m + p - 1)(F + B) + 2 (p - 1) c; nullopt if 2c > F + B.
std::optional<Ticks> eager_1f1b_makespan(const ScheduleRequest& request, const UniformTimes& times);

/// The handcrafted schedules of 2401.10241: rank r has `depth` times the warm-up of 1f1b, depth (p - 1 - r), and delays
/// its weight gradients by `depth` r passes.
Program handcrafted_zero_bubble(std::string_view schedule, const ScheduleRequest& request, int depth);

}  // namespace flopcast
