#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast {

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
