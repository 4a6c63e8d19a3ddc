#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"

namespace flopcast {

/// Simulated time is an integer. For a job one tick is a picosecond; for an abstract schedule it is a share of the unit
/// the user chose, small enough that chunks divide it (planner/tables/tables.hpp).
using Ticks = std::int64_t;
inline constexpr double kSecondsPerTick = 1e-12;  ///< of a job
inline constexpr double kTicksPerSecond = 1e12;

/// Times of one stage for one microbatch.
struct StageTimes {
  Ticks forward = 0;
  Ticks backward = 0;         ///< B, the full backward pass
  Ticks input_gradient = 0;   ///< I
  Ticks weight_gradient = 0;  ///< W
  /// An overlapped pair of which this stage runs the forward half; the sum of both halves when absent.
  std::optional<Ticks> fused;
  /// By how much such a pair is shorter than that sum; of the stages of its two halves the lesser counts.
  Ticks pair_saved = 0;

  /// Of one action.
  Ticks of(ActionKind kind) const {
    switch (kind) {
      case ActionKind::kForward:
        return forward;
      case ActionKind::kInputGradient:
        return input_gradient;
      case ActionKind::kWeightGradient:
        return weight_gradient;
      case ActionKind::kBackward:
        break;
    }
    return backward;
  }
};

/// Between stage s and stage s + 1 of a chain; ignored when both live on one rank.
struct BoundaryTimes {
  Ticks forward = 0;   ///< the activation from s to s + 1
  Ticks backward = 0;  ///< its gradient from s + 1 to s
};

/// What follows a rank's last backward action in a training step, in this order. All of one pipeline rank.
struct FlushTimes {
  Ticks gradient_reduction = 0;   ///< data-parallel reduction of the rank's gradients, after its last weight gradient
  Ticks embedding_reduction = 0;  ///< shared by the first and the last rank (tied embeddings); equal on both
  Ticks gradient_norm = 0;        ///< shared by all pipeline ranks: nobody starts its optimizer before it
  Ticks optimizer = 0;
  Ticks parameter_gather = 0;  ///< sharded optimizers hand the updated weights out again
};

/// A reduction on the gradient stream that may start before its stage's last backward action ends: the gradients it
/// adds up are ready `ready_before_end` ahead of that end (of the last B, or W, that the rank runs for the stage).
/// Reductions of a rank queue on its gradient stream in the order of these actions and of the list, ahead of its flush.
struct OverlappedReduction {
  int stage = 0;
  Ticks ready_before_end = 0;  ///< at most the action's duration
  Ticks duration = 0;
};

/// Everything the clock needs to know of a step.
struct StepTimes {
  std::vector<StageTimes> stages;         ///< by stage
  std::vector<BoundaryTimes> boundaries;  ///< by lower stage; one less than stages (boundaries between chains unused)
  /// The transfer occupies the compute stream of its sender (NCCL send called in line), instead of running beside it.
  bool blocking_sends = false;
  std::vector<FlushTimes> flush;  ///< by pipeline rank; empty for a bare schedule
  /// By pipeline rank; empty without any. Needs a flush.
  std::vector<std::vector<OverlappedReduction>> overlapped_reductions;
};

/// What a schedule is asked for.
struct ScheduleRequest {
  int pipeline_ranks = 1;
  int microbatches = 1;
  int chunks = 1;                                  ///< stages per rank (vpp)
  std::optional<int> group_size = std::nullopt;    ///< interleaving group N; absent: the schedule's default
  std::optional<int> accumulation = std::nullopt;  ///< microbatches per weight update; absent: the schedule's default
  /// Activations a rank may hold, in microbatches (all chunks of a rank are one), from the start of F to the end of B
  /// or W; a schedule whose variant counts otherwise says so. Absent: no limit.
  std::optional<int> memory_limit = std::nullopt;
  std::optional<int> slices = std::nullopt;  ///< token slices per microbatch; absent: the schedule's default
  std::string variant = {};                  ///< "fifo" or "lifo" where a schedule knows both; empty: its default
  /// By stage, where the order depends on them (ScheduleInfo::uses_times); absent: F = I = W, and no latency.
  std::optional<StepTimes> times = std::nullopt;
  /// Data-parallel copies of each stage, of which every one is a rank of its own: the program has their sum of ranks,
  /// and pipeline_ranks is the number of stages. Empty: one each.
  std::vector<int> stage_replicas = {};
};

/// Why a request cannot be met: one sentence that holds the offending value, and the nearest valid values.
struct ScheduleRefusal {
  std::string problem;
  std::string help;
};

/// Every stage takes the same time per microbatch (or slice of one, where the schedule cuts it), and every transfer
/// between two ranks the same latency.
struct UniformTimes {
  Ticks forward = 0;
  Ticks backward = 0;
  Ticks latency = 0;          ///< one way; nobody's stream is occupied by it
  Ticks weight_gradient = 0;  ///< the part W of the backward pass, where a schedule splits it; the rest of it is I
  Ticks input_gradient() const { return backward - weight_gradient; }
};

// Programs without actions, which generators and searches fill: how the stages lie on the ranks.

/// One chain in a loop: chunk k of rank r is stage k p + r; request.chunks stages a rank. Room for a forward and a
/// backward of each stage and microbatch is reserved.
Program empty_loop(std::string_view schedule, const ScheduleRequest& request);

/// One chain that runs over the ranks to and fro: stages 0 .. p-1 on ranks 0 .. p-1, stages p .. 2p-1 on ranks p-1 ..
/// 0, and so on; request.chunks stages a rank. Two chunks make a V, whose first and last stage share rank 0, and whose
/// stages p - 1 and p share rank p - 1 without a transfer.
Program empty_zigzag(std::string_view schedule, const ScheduleRequest& request);

/// The stage of rank `rank` on a V's way down (chunk 0) or back (chunk 1).
constexpr StageIndex v_stage(int pipeline_ranks, RankIndex rank, ChunkIndex chunk) {
  return StageIndex(chunk == 0 ? rank : 2 * pipeline_ranks - 1 - rank);
}

/// Two chains, each a whole model over all ranks: stages 0 .. p-1 on ranks 0 .. p-1, and stages p .. 2p-1 on ranks
/// p-1 .. 0.
Program empty_two_chains(std::string_view schedule, const ScheduleRequest& request);

}  // namespace flopcast
