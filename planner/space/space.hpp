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

/// How the layers of a transformer are spread over the stages of a layout.
struct SplitRule {
  enum class Kind {
    kUniform,      ///< as even as possible: even_stage_layers
    kBalanced,     ///< one stage a rank: the exact optimum of balanced_split over the priced layers
    kLighterEnds,  ///< the first and the last stage hold fewer, the inner ones share the rest evenly
  };
  Kind kind = Kind::kUniform;
  int fewer_first = 0;  ///< kLighterEnds: layers less than an even share
  int fewer_last = 0;
};

/// A schedule as a job file names it, less its chunks, which are an axis of their own.
struct ScheduleChoice {
  std::string text;  ///< "1f1b", "gpipe:lifo"
  const ScheduleInfo* info = nullptr;
  std::string variant;
};

/// What a planner may choose. An empty list: every value that the model, the batch and the devices allow.
/// tp cp pp: divisors of the devices, tp up to the heads and pp up to the layers; dp: what they leave over; ep:
/// divisors of the experts; etp: the tp ranks share each expert, or, where they split their tokens, none does.
struct SearchSpace : ByAxis<std::vector<int>> {
  std::vector<int> vpp;
  std::vector<int> etp;               ///< 0: the layout's own
  std::vector<int> micro_batch_size;  ///< divisors of global_batch_size / dp
  std::vector<int> zero;
  /// The most that `zero`, left open, shards beside a pipeline: what the software runs.
  int most_pipelined_zero = 3;
  std::vector<int> sequence_parallel;  ///< 0, 1
  std::vector<Recompute> recompute;    ///< selective only where attention is not fused, which keeps no scores to drop
  std::vector<ScheduleChoice> schedules;
  std::vector<SplitRule> splits;
  /// Orders of the axes over the nodes, innermost first, the usual one first; empty: the job's.
  std::vector<std::array<Axis, kGridAxes.size()>> placements;
  /// Nodes of the fabric that the job may take (usual_allocations); empty: those that it says.
  std::vector<int> free_nodes;
  /// Chunk counts that do not divide the layers too.
  bool uneven_chunks = false;
};

/// The synchronous schedules that training programs offer: naive gpipe 1f1b interleaved bfs zb-h1 zbv.
std::vector<ScheduleChoice> default_schedules();
/// Throws ConfigError (field "schedule").
ScheduleChoice schedule_choice(std::string_view text);
/// Replicas outermost, then pipelines: with each, the innermost of the two has the shorter ways.
std::vector<std::array<Axis, kGridAxes.size()>> usual_placements();
/// Uniform and balanced.
std::vector<SplitRule> default_splits();
/// These and lighter ends of up to two layers.
std::vector<SplitRule> all_splits();

/// A layout less its schedule, chunks, sharding and split: what decides the time of a block.
struct LayoutGroup : AxisSizes {
  int etp = 0;  ///< tensor-parallel ranks that share an expert; 0: as the job's layout says
  int micro_batch_size = 1;
  int microbatches = 1;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
  std::size_t members = 0;  ///< index into LayoutSpace::members
};

/// The rest of a layout.
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

/// Every layout of a search space on one cluster. A layout that breaks a rule is counted where the first axis breaks
/// it, once for the axes chosen so far; the others are members of a group.
struct LayoutSpace {
  std::vector<LayoutGroup> groups;
  std::vector<std::vector<LayoutMember>> members;
  std::vector<RejectedLayouts> rejected;
  std::int64_t valid = 0;  ///< members over all groups

  std::int64_t enumerated() const;
};

/// The layouts of `job`'s model, batch and devices. What the space does not name (data_parallel, compression, offload,
/// tensor_parallel …) stays as job.layout has it; so does the placement, of which a search takes one at a time. Layouts
/// that do the same work in the same order are listed once: no sharding without replicas, sequence parallelism only
/// beside tensor parallelism, one microbatch as naive. Without a pipeline there are no chunks unless the space fixes
/// them, and schedules that take chunks are listed only where 1f1b is not. With job.layout.stage_layers only layouts of
/// so many stages are valid. Up to 16,384 microbatches.
LayoutSpace enumerate_layouts(const Job& job, const SearchSpace& space);

/// The layout of a member; of a balanced split without its stage_layers, which need prices.
Layout layout_of(const Layout& base, const SearchSpace& space, const LayoutGroup& group, const LayoutMember& member,
                 int layers);

}  // namespace flopcast
