#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/verdict/run_comparison.hpp"
#include "model/job.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/memory_over_time.hpp"

namespace flopcast {

/// The verdict on a run: `answer`, the forecast of `asked`, beside what was measured, with the activations that the
/// run and the forecast hold where the ranks computed.
RunComparison judge_run(const Job& asked, Forecast answer, const MeasuredRun& run, TimesFrom times_from,
                        const ReadFile& read_file);

/// A figure that forecast, measurement and replay have; of peak memory the replay says nothing of its own.
struct RunTerm {
  std::string name;
  std::string key;
  std::string unit;
  double forecast = 0.0;
  double replay = 0.0;
  double measured = 0.0;

  /// Of the forecast; nothing where nothing was measured.
  std::optional<double> error_percent() const;
};
/// The step's time first.
std::vector<RunTerm> run_terms(const RunComparison& run);

/// What disturbed the run, or makes its forecast worthless, a sentence each.
std::vector<std::string> disturbance_texts(const RunComparison& run);

/// The job as flopcast-run trains it: in fp32, without dropout, with attention that keeps its probabilities unless it
/// is fused, as on GPUs, and a vocabulary that is not padded.
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
