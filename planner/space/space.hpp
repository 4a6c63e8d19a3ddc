#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/job.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

/// How the layers of a transformer are distributed over the stages of a layout.
struct SplitRule {
  enum class Kind {
    kUniform,      ///< as even as possible: even_stage_layers
    kBalanced,     ///< one stage per rank: the exact optimum of balanced_split over the priced layers
    kLighterEnds,  ///< the first and the last stage hold fewer layers, the inner ones share the rest evenly
  };
  Kind kind = Kind::kUniform;
  int fewer_first = 0;  ///< kLighterEnds: layers below an even share, in the first and the last stage
  int fewer_last = 0;
};

/// A schedule as named in a job file, without its chunks, which are a separate axis.
struct ScheduleChoice {
  std::string text;  ///< "1f1b", "gpipe:lifo"
  const ScheduleInfo* info = nullptr;
  std::string variant;
};

/// The choices of a planner. An empty list means all values that model, batch and devices allow. tp, cp, pp: divisors
/// of the number of devices, tp up to the heads and pp up to the layers; dp: the remaining factor; ep: divisors of the
/// experts; etp: the tp ranks either share each expert or, if they split their tokens, do not share experts.
struct SearchSpace : ByAxis<std::vector<int>> {
  std::vector<int> vpp;
  std::vector<int> etp;               ///< 0: as in the layout
  std::vector<int> micro_batch_size;  ///< divisors of global_batch_size / dp
  std::vector<int> zero;
  /// Highest ZeRO stage combined with a pipeline when `zero` is open: the limit of the software.
  int most_pipelined_zero = 3;
  std::vector<int> sequence_parallel;  ///< 0, 1
  std::vector<Recompute> recompute;    ///< selective only without fused attention, which keeps no scores to drop
  std::vector<ScheduleChoice> schedules;
  std::vector<SplitRule> splits;
  /// Placements of the axes on the nodes, innermost first; the default placement comes first. Empty: the job's.
  std::vector<std::array<Axis, kGridAxes.size()>> placements;
  /// Free nodes of the fabric (standard_allocations). Empty: the nodes that the job names.
  std::vector<int> free_nodes;
  /// Also allows chunk counts that do not divide the layers.
  bool uneven_chunks = false;
};

/// The synchronous schedules that training programs offer: naive gpipe 1f1b interleaved bfs zb-h1 zbv.
std::vector<ScheduleChoice> default_schedules();
/// Throws ConfigError (field "schedule").
ScheduleChoice schedule_choice(std::string_view text);
/// Two placements: replicas outermost, and pipelines outermost. The inner of the two axes has the shorter paths.
std::vector<std::array<Axis, kGridAxes.size()>> usual_placements();
/// Uniform and balanced.
std::vector<SplitRule> default_splits();
/// The default splits and lighter ends of up to two layers.
std::vector<SplitRule> all_splits();

/// A layout without its schedule, chunks, sharding and split: everything that decides the time of a block.
struct LayoutGroup : AxisSizes {
  int etp = 0;  ///< tensor-parallel ranks that share an expert; 0: as in the job's layout
  int micro_batch_size = 1;
  int microbatches = 1;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
  std::size_t members = 0;  ///< index into LayoutSpace::members
};

/// The remaining choices of a layout.
struct LayoutMember {
  std::uint16_t schedule = 0;  ///< index into SearchSpace::schedules
  std::uint16_t chunks = 1;
  std::uint8_t zero = 0;
  std::uint8_t split = 0;  ///< index into SearchSpace::splits
};

struct RejectedLayouts {
  std::string reason;
  std::int64_t count = 0;
};

/// All layouts of a search space on one cluster. A layout that breaks a rule is counted at the first axis that breaks
/// it, once per combination of the axes fixed so far; the others are members of a group.
struct LayoutSpace {
  std::vector<LayoutGroup> groups;
  std::vector<std::vector<LayoutMember>> members;
  std::vector<RejectedLayouts> rejected;
  std::int64_t valid = 0;  ///< members over all groups

  std::int64_t enumerated() const;
};

/// Enumerates the layouts of `job`'s model, batch and devices. Keys outside the space (data_parallel, compression,
/// offload, tensor_parallel …) stay as in job.layout; so does the placement, of which a search takes one at a time.
/// Layouts that do the same work in the same order are listed once: no sharding without replicas, sequence parallelism
/// only with tensor parallelism, one microbatch as naive. Without a pipeline there are no chunks unless the space fixes
/// them, and schedules that take chunks are listed only if 1f1b is not. With job.layout.stage_layers only layouts with
/// that number of stages are valid. At most 16,384 microbatches.
LayoutSpace enumerate_layouts(const Job& job, const SearchSpace& space);

/// Returns the layout of a member. For a balanced split it lacks stage_layers, which depend on prices.
Layout layout_of(const Layout& base, const SearchSpace& space, const LayoutGroup& group, const LayoutMember& member,
                 int layers);

}  // namespace flopcast
