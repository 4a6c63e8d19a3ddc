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

/// The properties of a schedule's program that bounds need, without the program itself.
struct ScheduleShape {
  StageMap stages;
  std::size_t map = 0;  ///< index of the stage map; equal maps share it, and with it their costs
  bool splits_backward = false;
  bool asynchronous = false;
  int slices = 1;
  int pipeline_ranks = 1;
  std::vector<RankActivations> held;  ///< by rank; upper-bounded by what the whole program holds
};

/// Derives shapes from generated programs and caches them. For many microbatches it reads a program with slightly more
/// than twice as many microbatches as ranks: the activations held by a rank never shrink with the microbatches
/// (tested), and the order of the steady state repeats. Schedules whose order depends on the stages' times are only
/// known to hold one microbatch.
class ScheduleShapes {
 public:
  ScheduleShapes(const Layout& base, const SearchSpace& space) : base_(base), space_(space) {}

  /// Not thread-safe.
  const ScheduleShape& shape(std::uint16_t schedule, int pipeline_ranks, int chunks, int microbatches);
  /// Returns null unless shape() has been called with these arguments.
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

/// Runs body(0) … body(count - 1), in any order and on any number of threads. Returns when all are done, and rethrows
/// the exception of the lowest failing index. The core starts no threads; the caller passes in the loop.
using ParallelFor = std::function<void(std::size_t count, const std::function<void(std::size_t index)>& body)>;

/// Runs the indices one after the other.
inline void serial_for(std::size_t count, const std::function<void(std::size_t index)>& body) {
  for (std::size_t index = 0; index < count; ++index) body(index);
}

/// Returns the layers of each stage, one stage per rank, that minimise the time of the slowest stage; among equals the
/// most even split, then the one with fewer layers in the first stage, which holds the most activations. Exact if all
/// layers cost the same, since only the layers of the first and last stage are then free. `uniform` holds the costs of
/// the even split on `stages`. Models with two kinds of layers use balanced_split (model/partition).
std::vector<int> balanced_layers(const Job& job, const StageMap& stages, const StepCosts& uniform,
                                 SharedPrices* shared = nullptr);

/// Lower bound of the step time over all orders of the shape's actions, in seconds, from the StepCosts that the
/// simulator reads. For rank r, with m microbatches, load_r the sum of its passes and lowest_r the first of its stages:
///   start_r  forward passes and transfers of the stages before lowest_r, which its first action waits for
///   end_r    start_r + m · load_r
///   cool_r   backward passes and transfers from lowest_r down to the first stage, which follow r's last one; where the
///            backward pass is split, only I and what must precede it count
///   P        max over r of start_r + m · load_r + cool_r, the end of the first stage's last backward pass
/// Reductions, embedding, norm, optimizer and gather follow as `lower` chains them. Bidirectional schedules share the
/// microbatches between their copies and start at both ends: their start and cool are 0. An asynchronous step is
/// bounded by its busiest rank. Gradient reductions in buckets that overlap with the passes are not counted.
double time_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs);
/// Bounds the part before reductions and optimizer. With the costs of ZeRO stage 0 it also bounds the other stages,
/// whose passes do at least as much.
double pass_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs);

/// Lower bound of the memory use in bytes on the fullest rank (least_rank_bytes).
FullestRank memory_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs);

/// Like price_step, without the most expensive part, which neither bound reads: gradients reduced in buckets that
/// overlap with the passes cost nothing here.
StepCosts price_for_bounds(Job& job, const StageMap& stages, const std::vector<int>& stage_layers,
                           SharedPrices* shared = nullptr);

/// Lower bounds for all members of a group.
struct GroupBound {
  double time_s = 0.0;
  double memory_share = 0.0;  ///< fraction of the smallest device's memory
  double bytes = 0.0;
  bool tight = false;
};

/// Lower bound of pass_bound for every member of the group with this shape, from the bound of the group. It exceeds the
/// group's bound if each rank has one stage of one copy, passes are whole and the step is flushed: rank r then ends its
/// m passes no earlier than t_0 + … + t_{r-1} + m · t_r. However the work W of a microbatch is split into stage times
/// t, the last of these ends at W / (1 - (1 - 1/m)^pp) or later.
double filled_bound(const GroupBound& bound, const ScheduleShape& shape, int microbatches);

/// Bounds of whole groups. One price, of the whole model as a single stage, serves all groups that differ only in dp,
/// pp or the number of microbatches: the busiest rank computes at least the mean over ranks, m · work / pp, and the
/// fullest rank holds at least the mean of the model states at the highest sharding in the space plus the mean of one
/// microbatch's activations. Times start from least_pass_time; `tighten` prices the whole pass. Memory bounds never
/// change. On clusters of uneven nodes all bounds are 0.
class GroupBounds {
 public:
  /// Keeps references to the first three arguments.
  GroupBounds(const Job& job, const SearchSpace& space, const std::vector<LayoutGroup>& groups,
              ParallelFor parallel_for);
  const GroupBound& operator[](std::size_t group) const { return bounds_[group]; }
  void tighten(const std::vector<std::size_t>& groups);

 private:
  /// The sizes and options that decide the price of a block; everything else is common to all layouts of the search.
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
