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

/// Buffers that a rank needs beside its states and the activations it keeps. Of its stages the largest each, since one
/// action runs at a time; what belongs to a pass is that of a token slice.
struct Workspace {
  /// Gradients of a block's activations, or keys and values of other context-parallel ranks where these are more, with
  /// what recomputation redoes.
  Bytes block;
  Bytes logits;            ///< gradients of the logits and of their input
  Bytes offload;           ///< activations on their way to or from the host
  Bytes gathered_weights;  ///< of sharded weights, with whole gradients before they are scattered
  Bytes dequantised;       ///< the largest weight stored in few bits, while it is multiplied with
  Bytes placeholders;      ///< gradients of linears that are allocated and never read
  Bytes gathered_input;    ///< the whole input of a linear whose tokens sequence parallelism keeps apart
  Bytes layer_beside;      ///< a layer's activations of the other half, where passes run in pairs layer by layer
  Bytes residuals;         ///< gradients that compression did not send, added to the next step's

  Bytes total() const;
};

/// `stages` are a rank's.
Workspace workspace_of(const Job& job, const StepCosts& costs, const std::vector<int>& stages, int slices);

/// What a pipeline rank holds beside activations.
struct StandingMemory {
  ModelStates states;
  Bytes versions;
  Bytes workspace;
  Bytes total() const { return states.total() + versions + workspace; }
};
/// `stages` are a rank's, which keeps `versions` of their weights.
StandingMemory standing_memory(const Job& job, const StepCosts& costs, const std::vector<int>& stages, int slices,
                               int versions);

/// What a pipeline rank needs at its fullest moment: the only place that sums a rank's memory.
struct RankSum {
  RankMemoryResult memory;
  Bytes standing;  ///< all but activations, without what is paged
  /// With Training::paged_optimizer the optimizer's states that do not fit besides the rest and wait in the host's
  /// memory: what the rank would show beyond the device's memory, at most all of them (QLoRA 2305.14314 §3).
  Bytes paged;
};

/// Memory of a rank's device.
///
///   weights, gradients, optimizer   e·Ψ, g·Ψ, K·Ψ, cut over the replicas as ZeRO, fsdp or hsdp say: model_states()
///   activations  what the operators keep, for the microbatches that the schedule holds at its fullest moment; a token
///                slice's share of a microbatch
///   versions     e·Ψ for each weight version beyond the first
///   workspace    the larger of: a block's activations while recomputation has them, with the gradients of an
///                operator's inputs and outputs, or with keys and values of other context-parallel ranks
///                (context_keys_of in memory.cpp); the gradients of the logits and of their input;
///                beside it the gathered input of a linear with sequence parallelism, the placeholders of weight
///                gradients, what sharded weights have gathered, a weight widened from few bits, offloaded activations
///                on their way, a layer's activations of a pass that runs beside another layer by layer, and the
///                residuals of compression
///   reserved     what the framework's allocator holds: the total and the stack's allocator_slack of the activations,
///                less those that the loss keeps (torch.cuda.max_memory_reserved)
///   shown        what nvidia-smi prints: reserved and the stack's memory_overhead, for the CUDA context, communication
///                buffers and, where a stack has no allocator_slack, fragmentation
/// It fits where every rank's `shown` does: the device has to hold the overhead as well.
RankSum rank_memory(const Job& job, const StepCosts& costs, const RankActivations& held, int slices, int rank,
                    int versions);
/// The same of activations that may be fewer than the program's: no more than rank_memory of those that it holds.
double least_rank_bytes(const Job& job, const StepCosts& costs, const RankActivations& held, int slices, int rank);

/// Of all pipeline ranks of a priced step.
MemoryResult step_memory(const PreparedStep& step);
/// Over the time of the step's timeline, in bytes, by pipeline rank.
std::vector<RankMemory> memory_over_time(const PreparedStep& step, const Timeline& timeline);

/// One kind of tensor on a rank at its fullest moment.
struct MemoryPart {
  std::string group;  ///< the name of a MemoryTerm
  std::string name;   ///< "mlp up input"
  Bytes each;
  double count = 1.0;  ///< layers times microbatches in flight, of activations

  Bytes total() const { return each * count; }
};

/// Buffers alive inside one action of the rank.
std::vector<MemoryPart> workspace_parts(const PreparedStep& step, int rank);

/// Everything that a rank holds when it holds most; totals add up to RankMemoryResult::total_gib. Activations by the
/// operator that keeps them for its backward pass; by stage where only a stage's sum is known: of layer profiles, block
/// inputs under full recomputation.
std::vector<MemoryPart> memory_parts(const PreparedStep& step, int rank, const RankMemoryResult& memory,
                                     const RankMemory& over_time);

/// Of the rank that holds most.
int fullest_rank(const MemoryResult& memory);
/// memory_parts of the fullest rank, largest first.
std::vector<MemoryPart> fullest_rank_parts(const PreparedStep& step, const MemoryResult& memory,
                                           const std::vector<RankMemory>& over_time);

// The network that flopcast-run trains for a job, and the memory it needs.
/// The job as flopcast-run trains it: weights and gradients in fp32, without dropout, with attention that keeps its
/// probabilities unless it is fused, as on GPUs, a vocabulary that is not padded, whole messages between stages,
/// gradients reduced by shares where the optimizer's state is cut, and no gradient norm.
Job job_as_run(Job job, bool fused_attention);

/// Bytes that each action of a stage keeps, by stage. Expects the step of job_as_run(); see memory_as_run().
std::vector<HeldBytes> held_as_run(const PreparedStep& step);
/// The same on the job's own cluster: all of it until the weight gradient.
std::vector<HeldBytes> held_as_priced(const PreparedStep& step);

/// Peak activations of job_as_run() by pipeline rank, counted through the rank's list of actions, where `job` is its
/// forecast. What a forward pass keeps stays until the weight gradient, as the cost model has it. Where that comes
/// apart from the input gradient, the run keeps less of some layers in between and more of others:
///   linears       their inputs, and the gradients of their outputs
///   norms         the same: normalised inputs and gradients of outputs
///   biases        with sequence parallelism, behind row linears: their rows of the gradient that the linear has whole
///   embedding     the gradient of its output
///   the others    nothing
/// A gradient that two layers keep counts once. Left out: one float a row of each norm, slices that see less than the
/// last one, and what passes need while they run.
MemoryResult memory_as_run(const Forecast& job);

}  // namespace flopcast
