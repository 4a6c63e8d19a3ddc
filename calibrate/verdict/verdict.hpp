#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/job.hpp"
#include "sim/files/compared_run.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

Ticks median(std::vector<Ticks> values);

/// The program as it was executed: each rank's actions in the order of their starts, in the given chains.
Program executed_program(const Timeline& timeline, const Program& planned);

/// What ranks took for their own work, from timelines of equal steps, whatever they waited for. Medians:
///   actions     by stage and kind
///   gaps        from the end of an action to the start of the next one of its rank, of which nothing but overhead is
///               left when nobody waits; `with_gaps` counts them with the action that follows
///   flush       by rank: the optimizer, and what was left of the gradient reductions after the last action; the
///               reduction of tied tables of the rank that came to it last
/// Without a flush the updates between the actions count, spread evenly over the backward passes of their rank.
/// Transfers take no time.
StepTimes median_times(const std::vector<Timeline>& steps, const Program& program, bool with_gaps);

/// The forecast of a run from its calibration: median_times() with gaps of each rank on its own, actions that sleep as
/// long as they were told to, and messages. A message delays the receiver by one_way - receive after it was sent; what
/// receiving takes is the receiver's own time whether it waited or not (LogP's o), and counts with its action: a rank
/// on its own copies its inputs too.
/// `steps` are those of one calibration or of both, without what warms up (warmed_up()).
StepTimes calibrated_times(const MeasuredRun& run, const std::vector<Timeline>& steps, const Program& program);

/// Without the first two, where they are not the only ones.
std::vector<Timeline> warmed_up(const std::vector<Timeline>& calibration);

/// Mean loss of every step. An asynchronous run is cut into steps of `microbatches`, or slices of them.
std::vector<double> step_losses(const MeasuredRun& run, int microbatches);

/// Counted steps of a run that was asked for `steps`, of which some warm up, and of an asynchronous schedule one
/// drains.
int counted_steps(int steps, int warmup, bool asynchronous);

/// `as_run` has the bytes of the forecast, and the memory of one that is calibrated: see memory_as_run().
RunComparison compare_run(Forecast job, const Result& as_run, const MeasuredRun& run, TimesFrom times_from);

/// The verdict on a run: `answer`, the forecast of `asked`, beside what was measured, with the activations that the
/// run and the forecast hold where the ranks computed.
RunComparison judge_run(const Job& asked, Forecast answer, const MeasuredRun& run, TimesFrom times_from,
                        const ReadFile& read_file);

/// The job as flopcast-run trains it: weights and gradients in fp32, without dropout, with attention that keeps its
/// probabilities unless it is fused, as on GPUs, a vocabulary that is not padded, whole messages between stages,
/// gradients reduced by shares where the optimizer's state is cut, and no gradient norm.
Job job_as_run(Job job, bool fused_attention);

/// What each action of a stage keeps, by stage, where `step` is that of job_as_run(); see memory_as_run().
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
