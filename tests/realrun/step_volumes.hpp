#pragma once

#include "realrun/training/train.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast::realrun {

inline constexpr double kFloatBytes = 4.0;

/// Microbatches per stage in a step, and the number of passes that gather and reduce sharded weights.
struct StagePasses {
  double microbatches = 0;
  double rows = 0;
};
StagePasses passes_of(const PreparedStep& step, int stage);

/// Updates of the weights in a step.
double updates_of(const PreparedStep& step);

/// Bytes that the model counts between neighbouring stages of a pipeline rank: activations and gradients.
double predicted_point_to_point(const PreparedStep& step, int pipeline_rank);

/// Traffic that the model omits: with sequence parallelism each rank computes a part of the gradients of norms, of the
/// row linears' biases and of the positions, and on tensor-parallel ranks always of the norms of queries and keys and
/// of routers; these are summed before each reduction over the replicas.
double partial_bytes(const PreparedStep& step, const RankResult& rank);

/// Traffic that the model omits on a grid of tensor-parallel ranks: norms, biases and positions are split q times
/// rather than into as many parts as the weights of linears, and ranks with the same part sum their gradients in every
/// microbatch.
struct GridVectors {
  double sent = 0;      ///< bytes per microbatch
  double repeated = 0;  ///< elements beyond those the model counts
};
GridVectors vectors_on_grid(const PreparedStep& step, const RankResult& rank);

}  // namespace flopcast::realrun
