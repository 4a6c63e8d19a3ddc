#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"

namespace flopcast {

/// Simulated time is an integer. For a job one tick is a picosecond; for an abstract schedule it is a fraction of the
/// user's unit, small enough to divide exactly by the number of chunks (planner/tables/tables.hpp).
using Ticks = std::int64_t;
inline constexpr double kSecondsPerTick = 1e-12;  ///< for a job
inline constexpr double kTicksPerSecond = 1e12;

/// Times of one stage for one microbatch.
struct StageTimes {
  Ticks forward = 0;
  Ticks backward = 0;         ///< B, the full backward pass
  Ticks input_gradient = 0;   ///< I
  Ticks weight_gradient = 0;  ///< W
  /// Duration of an overlapped pair whose forward half runs on this stage; absent: the sum of both halves.
  std::optional<Ticks> fused;
  /// Time that such a pair saves over that sum; the smaller value of the stages of its two halves applies.
  Ticks pair_saved = 0;

  /// Time of one action.
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

/// Transfer times between stage s and stage s + 1 of a chain; ignored if both are on one rank.
struct BoundaryTimes {
  Ticks forward = 0;   ///< the activation from s to s + 1
  Ticks backward = 0;  ///< its gradient from s + 1 to s
};

/// Operations that follow a rank's last backward action in a training step, in this order. Times of one pipeline rank.
struct FlushTimes {
  Ticks gradient_reduction = 0;   ///< data-parallel reduction of the rank's gradients, after its last weight gradient
  Ticks embedding_reduction = 0;  ///< shared by the first and the last rank (tied embeddings); equal on both
  Ticks gradient_norm = 0;        ///< shared by all pipeline ranks: no optimizer starts before it ends
  Ticks optimizer = 0;
  Ticks parameter_gather = 0;  ///< all-gather of the updated weights, for sharded optimizers
};

/// A reduction on the gradient stream that may start before its stage's last backward action ends: its gradients are
/// ready `ready_before_end` ahead of that end (of the last B, or W, that the rank runs for the stage). Reductions of a
/// rank queue on its gradient stream in the order of these actions, then of the list, ahead of its flush.
struct OverlappedReduction {
  int stage = 0;
  Ticks ready_before_end = 0;  ///< at most the action's duration
  Ticks duration = 0;
};

/// All times of a step that a simulation needs.
struct StepTimes {
  std::vector<StageTimes> stages;         ///< indexed by stage
  std::vector<BoundaryTimes> boundaries;  ///< indexed by lower stage; one fewer than stages (boundaries between chains
                                          ///< are unused)
  /// A transfer occupies the compute stream of its sender (NCCL send called in line) instead of overlapping with it.
  bool blocking_sends = false;
  std::vector<FlushTimes> flush;  ///< indexed by pipeline rank; empty for a bare schedule
  /// Indexed by pipeline rank; empty if there are none. Requires a flush.
  std::vector<std::vector<OverlappedReduction>> overlapped_reductions;
};

/// The parameters of a schedule to be generated.
struct ScheduleRequest {
  int pipeline_ranks = 1;
  int microbatches = 1;
  int chunks = 1;                                  ///< stages per rank (vpp)
  std::optional<int> group_size = std::nullopt;    ///< interleaving group N; absent: the schedule's default
  std::optional<int> accumulation = std::nullopt;  ///< microbatches per weight update; absent: the schedule's default
  /// Maximum number of activations a rank may hold, in microbatches (all chunks of a rank count as one), from the start
  /// of F to the end of B or W; schedules with variants that count differently say so. Absent: no limit.
  std::optional<int> memory_limit = std::nullopt;
  std::optional<int> slices = std::nullopt;  ///< token slices per microbatch; absent: the schedule's default
  std::string variant = {};                  ///< "fifo" or "lifo" for schedules that support both; empty: the
                                             ///< schedule's default
  /// Times by stage, for schedules whose order depends on them (ScheduleInfo::uses_times); absent: F = I = W, zero
  /// latency.
  std::optional<StepTimes> times = std::nullopt;
  /// Data-parallel copies of each stage, each of which is a rank of its own: the program has as many ranks as there are
  /// copies in total, and pipeline_ranks is the number of stages. Empty: one copy per stage.
  std::vector<int> stage_replicas = {};
};

/// Why a request cannot be satisfied: one sentence that names the offending value, and the nearest valid values.
struct ScheduleRefusal {
  std::string problem;
  std::string help;
};

/// Every stage takes the same time per microbatch (or per slice, if the schedule cuts microbatches), and every transfer
/// between two ranks has the same latency.
struct UniformTimes {
  Ticks forward = 0;
  Ticks backward = 0;
  Ticks latency = 0;          ///< one way; occupies no stream
  Ticks weight_gradient = 0;  ///< the part W of the backward pass, if the schedule splits it; the rest is I
  Ticks input_gradient() const { return backward - weight_gradient; }
};

// Programs without actions, to be filled by generators and searches: they place the stages on the ranks.

/// One chain that loops over the ranks: chunk k of rank r is stage k p + r; request.chunks stages per rank. Reserves
/// room for a forward and a backward of each stage and microbatch.
Program empty_loop(std::string_view schedule, const ScheduleRequest& request);

/// One chain that zigzags over the ranks: stages 0 .. p-1 on ranks 0 .. p-1, stages p .. 2p-1 on ranks p-1 .. 0, and so
/// on; request.chunks stages per rank. Two chunks form a V: its first and last stages share rank 0, and stages p - 1
/// and p share rank p - 1 without a transfer.
Program empty_zigzag(std::string_view schedule, const ScheduleRequest& request);

/// Stage of rank `rank` on the descending (chunk 0) or ascending (chunk 1) half of a V.
constexpr StageIndex v_stage(int pipeline_ranks, RankIndex rank, ChunkIndex chunk) {
  return StageIndex(chunk == 0 ? rank : 2 * pipeline_ranks - 1 - rank);
}

/// Two chains, each a full copy of the model over all ranks: stages 0 .. p-1 on ranks 0 .. p-1, and stages p .. 2p-1 on
/// ranks p-1 .. 0.
Program empty_bidirectional(std::string_view schedule, const ScheduleRequest& request);

}  // namespace flopcast
