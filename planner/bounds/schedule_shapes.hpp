#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/layout/layout.hpp"
#include "planner/space/space.hpp"

namespace flopcast {

/// Activations a rank holds at one moment, by stage of its list.
using HeldCounts = std::vector<int>;

/// What bounds need to know of a schedule's program, without the program.
struct ScheduleShape {
  StageMap stages;
  std::size_t map = 0;  ///< equal for equal stage maps: costs of one hold for the other
  bool splits_backward = false;
  bool asynchronous = false;
  int slices = 1;
  int pipeline_ranks = 1;
  std::vector<std::vector<int>> stages_of_rank;
  /// By rank: the moments at which it holds most, none of which is below another; at most what the whole program holds.
  std::vector<std::vector<HeldCounts>> held;
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

/// The moments at which a rank that executes `actions` holds most, each by stage of `stages`; `frees_in_pairs` is the
/// program's.
std::vector<HeldCounts> fullest_moments(const std::vector<Action>& actions, const std::vector<int>& stages,
                                        bool frees_in_pairs);

}  // namespace flopcast
