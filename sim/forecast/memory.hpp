#pragma once

#include <string>
#include <vector>

#include "model/cost/data_parallel.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Buffers that a rank needs in addition to model states and saved activations. Each is the largest among the rank's
/// stages, because one action runs at a time; a buffer that belongs to a pass is that of a token slice.
struct Workspace {
  /// Gradients of a block's activations, or the larger keys and values of other context-parallel ranks, plus
  /// activations restored by recomputation.
  Bytes block;
  Bytes logits;            ///< gradients of the logits and of their input
  Bytes offload;           ///< activations in transit to or from the host
  Bytes gathered_weights;  ///< for sharded weights, with unsharded gradients before they are scattered
  Bytes dequantised;       ///< the largest quantised weight, widened for its multiplication
  Bytes placeholders;      ///< gradients of linears that are allocated but never read
  Bytes gathered_input;    ///< the whole input of a linear whose tokens are split by sequence parallelism
  Bytes overlapped_layer;  ///< a layer's activations of the other half, if pairs run layer by layer
  Bytes residuals;         ///< gradients that compression did not send, added to those of the next step

  Bytes total() const;
};

/// `stages` are those of one rank.
Workspace workspace_of(const Job& job, const StepCosts& costs, const std::vector<int>& stages, int slices);

/// Memory of a pipeline rank other than activations.
struct StaticMemory {
  ModelStates states;
  Bytes versions;
  Bytes workspace;
  Bytes total() const { return states.total() + versions + workspace; }
};
/// `stages` are those of one rank, which keeps `versions` versions of their weights.
StaticMemory standing_memory(const Job& job, const StepCosts& costs, const std::vector<int>& stages, int slices,
                             int versions);

/// Memory that a pipeline rank needs at its fullest moment. A rank's memory is summed nowhere else.
struct RankSum {
  RankMemoryResult memory;
  Bytes standing;  ///< everything except activations, without paged states
  /// With Training::paged_optimizer, the optimizer states that do not fit and are kept in host memory: the excess of
  /// the rank's shown memory over the device's memory, at most all optimizer states (QLoRA 2305.14314 §3).
  Bytes paged;
};

/// Memory of a rank's device.
///
///   weights, gradients, optimizer   e·Ψ, g·Ψ, K·Ψ, sharded over the replicas by ZeRO, fsdp or hsdp: model_states()
///   activations  tensors that operators save, for the microbatches that the schedule holds at its fullest moment;
///                a token slice has its share of a microbatch
///   versions     e·Ψ for each weight version beyond the first
///   workspace    the larger of: a block's activations during recomputation, with the gradients of an operator's inputs
///                and outputs, or with keys and values of other context-parallel ranks (context_keys_of in memory.cpp);
///                and the gradients of the logits and of their input.
///                In addition: the gathered input of a linear with sequence parallelism, placeholders of weight
///                gradients, gathered sharded weights, a weight widened from few bits, offloaded activations in
///                transit, one layer's activations of a pass that overlaps layer by layer, and the residuals of
///                compression
///   reserved     memory held by the framework's allocator: the total plus the stack's allocator_slack of all
///                activations except those kept by the loss (torch.cuda.max_memory_reserved)
///   shown        memory printed by nvidia-smi: reserved plus the stack's memory_overhead, for the CUDA context,
///                communication buffers and, for a stack without allocator_slack, fragmentation
/// The step fits if every rank's `shown` does, because the device has to hold the overhead as well.
RankSum rank_memory(const Job& job, const StepCosts& costs, const RankActivations& held, int slices, int rank,
                    int versions);
/// Lower bound for activations that may be fewer than the program's: at most rank_memory of the activations that it
/// holds.
double least_rank_bytes(const Job& job, const StepCosts& costs, const RankActivations& held, int slices, int rank);

/// Memory of all pipeline ranks of a priced step.
MemoryResult step_memory(const PreparedStep& step);
/// Memory over the time of the step's timeline, in bytes, indexed by pipeline rank.
std::vector<RankMemory> memory_over_time(const PreparedStep& step, const Timeline& timeline);

/// One kind of tensor on a rank at its fullest moment.
struct MemoryPart {
  std::string group;  ///< the name of a MemoryTerm
  std::string name;   ///< "mlp up input"
  Bytes each;
  double count = 1.0;  ///< for activations: layers times microbatches in flight

  Bytes total() const { return each * count; }
};

/// Buffers that live within one action of the rank.
std::vector<MemoryPart> workspace_parts(const PreparedStep& step, int rank);

/// Everything that a rank holds at its fullest moment; totals sum to RankMemoryResult::total_gib. Activations are
/// listed by the operator that saves them for its backward pass, or by stage if only a stage's sum is known: for layer
/// profiles, and for block inputs under full recomputation.
std::vector<MemoryPart> memory_parts(const PreparedStep& step, int rank, const RankMemoryResult& memory,
                                     const RankMemory& over_time);

/// Index of the rank that holds the most.
int fullest_rank(const MemoryResult& memory);
/// memory_parts of the fullest rank, largest first.
std::vector<MemoryPart> fullest_rank_parts(const PreparedStep& step, const MemoryResult& memory,
                                           const std::vector<RankMemory>& over_time);

// The network that flopcast-run trains for a job, and the memory it needs.
/// The job as flopcast-run trains it: weights and gradients in fp32, no dropout, attention that keeps its probabilities
/// unless it is fused as on GPUs, an unpadded vocabulary, unsplit messages between stages, gradients reduce-scattered
/// if the optimizer's state is sharded, and no gradient norm.
Job job_as_run(Job job, bool fused_attention);

/// Bytes that each action of a stage keeps, indexed by stage. Requires the step of job_as_run(); see memory_as_run().
std::vector<HeldBytes> held_in_run(const PreparedStep& step);
/// Same, on the job's own cluster: everything is kept until the weight gradient.
std::vector<HeldBytes> held_as_priced(const PreparedStep& step);

/// Peak activations of job_as_run(), indexed by pipeline rank and counted over the rank's list of actions; `job` is its
/// forecast. In the cost model, tensors saved by a forward pass stay until the weight gradient. If the weight gradient
/// is separate from the input gradient, the run keeps less of some layers in between and more of others:
///   linears       their inputs, and the gradients of their outputs
///   norms         the same: normalised inputs and gradients of outputs
///   biases        with sequence parallelism, after row-parallel linears: their rows of the gradient, which the
///                 linear has in full
///   embedding     the gradient of its output
///   the others    nothing
/// A gradient that two layers keep counts once. Left out: one float per row of each norm, slices that attend to less
/// than the last one, and temporary memory of running passes.
MemoryResult memory_as_run(const Forecast& job);

}  // namespace flopcast
