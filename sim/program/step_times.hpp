#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/program/action.hpp"

namespace flopcast {

/// Simulated time is an integer. For a job one tick is a picosecond; for an abstract schedule it is a share of the unit
/// the user chose, small enough that chunks divide it (planner/tables/schedule_tables.hpp).
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

}  // namespace flopcast
