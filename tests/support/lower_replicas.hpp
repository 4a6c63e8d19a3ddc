#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/task_graph.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// Number of copies of a pipeline, and the communication of its tensor-parallel ranks.
struct Replicas {
  int data_parallel = 1;
  int tensor_parallel = 1;
  /// Tensor-parallel communication of each action, by stage, merged into one collective that follows it. StepTimes then
  /// contains only computation. Ignored with a single tensor-parallel rank.
  std::vector<StageTimes> collectives;
};

/// The stream of a rank. Tensor-parallel ranks are adjacent, then data-parallel ones, then pipeline ranks.
constexpr StreamId stream_of(const Replicas& replicas, int pipeline_rank, int data_rank, int tensor_rank) {
  return static_cast<StreamId>((pipeline_rank * replicas.data_parallel + data_rank) * replicas.tensor_parallel +
                               tensor_rank);
}

/// A step with every rank of every replica explicit, for questions in which ranks differ: one stream per rank; after
/// each action, one collective shared by its tensor-parallel group; and with a flush, on the same stream, the gradient
/// reduction as a collective of the data-parallel group, the embedding reduction of first and last stage, the gradient
/// norm over all ranks, the optimizer and the parameter gather of the data-parallel group. Dependencies and latencies
/// are those of lower().
///
/// Overlapped gradient reductions are not modelled here: StepTimes must have none. For valid programs without
/// overlapped pairs and with transfers that do not block the sender; throws ConfigError (field "schedule") otherwise.
/// 12 to 60 bytes per task; linear time.
TaskGraph lower_replicas(const Program& program, const StepTimes& times, const Replicas& replicas);

}  // namespace flopcast
