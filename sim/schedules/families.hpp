#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/schedules/catalogue.hpp"

namespace flopcast {

// The schedules by family, a file each; a schedule's rule, its source and its figures stand above its entry.

// one_stage.cpp: one stage a rank, which only differ in how many forwards a rank runs ahead.
ScheduleInfo naive_schedule();
ScheduleInfo gpipe_schedule();
ScheduleInfo terapipe_schedule();
ScheduleInfo one_forward_one_backward_schedule();
ScheduleInfo eager_1f1b_schedule();
ScheduleInfo dapple_schedule();

// zero_bubble.cpp: one stage a rank, weight gradients apart.
ScheduleInfo zb_h1_schedule();
ScheduleInfo zb_h2_schedule();
ScheduleInfo zb_auto_schedule();

// looped.cpp: several stages a rank, which run round and round over the ranks.
ScheduleInfo bfs_schedule();
ScheduleInfo interleaved_schedule();
ScheduleInfo interleaved_zb_schedule();
ScheduleInfo gis_schedule();

// v_shaped.cpp: several stages a rank, which run to and fro.
ScheduleInfo one_f_one_b_v_schedule();
ScheduleInfo v_half_schedule();
ScheduleInfo v_min_schedule();
ScheduleInfo v_auto_schedule();
ScheduleInfo zbv_schedule();
ScheduleInfo hanayo_schedule();

// two_way.cpp: microbatches from both ends at once.
ScheduleInfo chimera_schedule();
ScheduleInfo dualpipe_schedule();
ScheduleInfo dualpipev_schedule();

// without_flush.cpp: weights change while the pipeline stays full.
ScheduleInfo pipedream_schedule();
ScheduleInfo pipedream_2bw_schedule();
ScheduleInfo pipemare_schedule();

// What families share. The orders of one stage a rank:

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

/// The same with twice the shortest warm-up: (m + p - 1)(F + B) + 2 (p - 1) c; nothing when 2c > F + B.
std::optional<Ticks> eager_1f1b_makespan(const ScheduleRequest& request, const UniformTimes& times);

// Split backward passes:

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
