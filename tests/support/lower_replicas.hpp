#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/task_graph.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// How often a pipeline exists, and what its tensor-parallel ranks do together.
struct Replicas {
  int data_parallel = 1;
  int tensor_parallel = 1;
  /// By stage: the tensor-parallel communication of each action, merged into one collective that follows it. StepTimes
  /// then holds computation only. Ignored with one tensor-parallel rank.
  std::vector<StageTimes> collectives;
};

/// The stream of a rank. Tensor-parallel ranks are neighbours, then data-parallel ones, then pipeline ranks.
constexpr StreamId stream_of(const Replicas& replicas, int pipeline_rank, int data_rank, int tensor_rank) {
  return static_cast<StreamId>((pipeline_rank * replicas.data_parallel + data_rank) * replicas.tensor_parallel +
                               tensor_rank);
}

/// A step with every rank of every replica explicit, for questions in which ranks differ: one stream a rank; after each
/// action one collective shared by its tensor-parallel group; and with a flush, on the same stream, the gradient
/// reduction as a collective of the data-parallel group, the embedding reduction of first and last stage, the gradient
/// norm of all ranks, the optimizer and the parameter gather of the data-parallel group. Dependencies and latencies are
/// lower()'s.
///
/// Overlapped gradient reductions are not modelled here: StepTimes must have none.
/// For valid programs without overlapped pairs and with transfers that leave the sender free; ConfigError (field
/// "schedule") otherwise. 12 to 60 bytes per task; linear.
TaskGraph lower_replicas(const Program& program, const StepTimes& times, const Replicas& replicas);

}  // namespace flopcast
