#pragma once

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"

namespace flopcast {

/// Buffers that a rank needs beside its states and the activations it keeps. Of its stages the largest each, since one
/// action runs at a time; what belongs to a pass is that of a token slice.
struct Workspace {
  Bytes block;             ///< gradients of a block's activations, with what recomputation redoes
  Bytes logits;            ///< gradients of the logits and of their input
  Bytes offload;           ///< activations on their way to or from the host
  Bytes gathered_weights;  ///< of sharded weights, with whole gradients before they are scattered
  Bytes placeholders;      ///< gradients of linears that are allocated and never read
  Bytes gathered_input;    ///< the whole input of a linear whose tokens sequence parallelism keeps apart
  Bytes residuals;         ///< gradients that compression did not send, added to the next step's

  Bytes total() const;
};

Workspace workspace_of(const Job& job, const StageMap& stages, const StepCosts& costs, int slices, int rank);

}  // namespace flopcast
