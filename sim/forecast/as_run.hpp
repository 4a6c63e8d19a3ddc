// The network that flopcast-run trains for a job, and the memory it needs.
#pragma once

#include <vector>

#include "model/job.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

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
