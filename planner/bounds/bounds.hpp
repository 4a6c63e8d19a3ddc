#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "model/layout/layout.hpp"
#include "planner/space/space.hpp"
#include "sim/forecast/evaluate.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// What bounds need to know of a schedule's program, without the program.
struct ScheduleShape {
  StageMap stages;
  std::size_t map = 0;  ///< equal for equal stage maps: costs of one hold for the other
  bool splits_backward = false;
  bool asynchronous = false;
  int slices = 1;
  int pipeline_ranks = 1;
  std::vector<RankActivations> held;  ///< by rank; at most what the whole program holds
};

/// Reads shapes off generated programs, and remembers them. Programs of many microbatches are read off one of few
/// more than twice the ranks: what a rank holds never shrinks with the microbatches (tested), and the order of the
/// steady state repeats. Schedules whose order depends on the stages' times are only known to hold one microbatch.
class ScheduleShapes {
 public:
  ScheduleShapes(const Layout& base, const SearchSpace& space) : base_(base), space_(space) {}

  /// Not for two threads at once.
  const ScheduleShape& shape(std::uint16_t schedule, int pipeline_ranks, int chunks, int microbatches);
  /// Null when shape() has not been asked for it.
  const ScheduleShape* known(std::uint16_t schedule, int pipeline_ranks, int chunks, int microbatches) const;

 private:
  struct Key {
    std::uint16_t schedule;
    int pipeline_ranks;
    int chunks;
    int microbatches;
    bool operator<(const Key& other) const;
  };

  ScheduleRequest request_of(const Key& key) const;
  Key key_of(std::uint16_t schedule, int pipeline_ranks, int chunks, int microbatches) const;
  ScheduleShape make_shape(const Key& key, int microbatches);
  std::size_t map_number(const StageMap& map);

  const Layout& base_;
  const SearchSpace& space_;
  std::map<Key, ScheduleShape> shapes_;
  std::vector<StageMap> maps_;
};

/// Runs body(0) … body(count - 1), in any order and on any number of threads; returns when all are done, and throws
/// what the first failing index threw. The core starts no threads; the caller hands in how.
using ParallelFor = std::function<void(std::size_t count, const std::function<void(std::size_t index)>& body)>;

/// One after the other.
inline void serial_for(std::size_t count, const std::function<void(std::size_t index)>& body) {
  for (std::size_t index = 0; index < count; ++index) body(index);
}

/// The layers of each stage, one stage a rank, whose dearest stage is cheapest; of those the most even, and then the
/// one with fewer layers in the first stage, which holds the most activations. Exact where all layers cost alike: then
/// only how much the first and the last stage hold is open. `uniform` are the costs of the even split on `stages`.
/// Models with two kinds of layers go to balanced_split (model/partition).
std::vector<int> balanced_layers(const Job& job, const StageMap& stages, const StepCosts& uniform,
                                 SharedPrices* shared = nullptr);

/// The time no order of the shape's actions can undercut, in seconds, from the same StepCosts that the simulator reads.
/// Of rank r, with m microbatches, load_r the sum of its passes and lowest_r the first of its stages:
///   start_r  forward passes and transfers of the stages before lowest_r, which its first action waits for
///   end_r    start_r + m · load_r
///   cool_r   backward passes and transfers from lowest_r down to the first stage, which follow r's last one; where the
///            backward pass is split, only I and what must precede it count
///   P        max over r of start_r + m · load_r + cool_r, the end of the first stage's last backward pass
/// then reductions, embedding, norm, optimizer and gather as `lower` chains them. Bidirectional schedules share the
/// microbatches between their copies and start at both ends: start and cool count as nothing. An asynchronous step is
/// bounded by its busiest rank. Gradient reductions in buckets beside the passes are not counted.
double time_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs);
/// The part before reductions and optimizer. With costs of ZeRO stage 0 it bounds the others too, whose passes only do
/// more.
double pass_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs);

/// A lower bound of the bytes that the fullest rank shows (least_rank_bytes).
FullestRank memory_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs);

/// price_step less what neither bound reads and what costs most: gradients that are reduced in buckets beside the
/// passes. They count as free.
StepCosts price_for_bounds(Job& job, const StageMap& stages, const std::vector<int>& stage_layers,
                           SharedPrices* shared = nullptr);

/// What no member of a group undercuts.
struct GroupBound {
  double time_s = 0.0;
  double memory_share = 0.0;  ///< of the smallest device's memory
  double bytes = 0.0;
  bool tight = false;
};

/// No more than the pass_bound of any member of the group with this shape, from the bound of the group. It is more than
/// that bound where each rank has one stage of one copy, passes are whole and the step is flushed: rank r then ends its
/// m passes no earlier than t_0 + … + t_{r-1} + m · t_r. However the work W of a microbatch is split into stage times
/// t, the last of these ends at W / (1 - (1 - 1/m)^pp) or later.
double filled_bound(const GroupBound& bound, const ScheduleShape& shape, int microbatches);

/// Bounds of whole groups, from one price of the whole model as a single stage for all groups that differ only in dp,
/// pp or the number of microbatches: the busiest rank computes at least the mean of all, m · work / pp, and the fullest
/// holds at least the mean of their states at the most sharding of the space, and of one microbatch's activations.
/// Times start from least_pass_time; `tighten` prices the whole pass. Bytes never change.
/// Clusters of uneven nodes are not bounded this way: all bounds are 0.
class GroupBounds {
 public:
  /// Borrows the first three.
  GroupBounds(const Job& job, const SearchSpace& space, const std::vector<LayoutGroup>& groups,
              ParallelFor parallel_for);
  const GroupBound& operator[](std::size_t group) const { return bounds_[group]; }
  void tighten(const std::vector<std::size_t>& groups);

 private:
  /// The sizes and options that decide the price of a block; all else is the same for every layout of the search.
  using WorkKey = std::tuple<int, int, int, int, int, bool, Recompute>;

  static WorkKey key_of(const LayoutGroup& group);
  double time_of(const LayoutGroup& group, Seconds work) const;
  void bound_memory();
  void bound_time_loosely();

  const Job& job_;
  const SearchSpace& space_;
  const std::vector<LayoutGroup>& groups_;
  ParallelFor parallel_for_;
  std::map<WorkKey, Seconds> works_;
  std::vector<GroupBound> bounds_;
};

}  // namespace flopcast
