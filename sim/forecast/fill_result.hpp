#pragma once

#include "model/job.hpp"
#include "sim/forecast/result.hpp"
#include "sim/forecast/step_profile.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Breakdown, bubble and exposed communication from how a step's time is spent. What the breakdown already holds of
/// recomputation and of communication inside passes is taken out of compute.
void fill_from_profile(const StepProfile& profile, Result& result);

/// Rates of a step of `time_s`. Recomputed FLOPs are those of one pipeline.
void fill_iteration(const Job& job, double time_s, double recompute_flops_per_pipeline, IterationResult& iteration);

/// What a timeline of one step tells of a job, forecast or measured: everything but memory and what was sent.
/// Communication inside actions (tensor parallelism, ZeRO 3) counts as compute.
Result result_of_timeline(const Job& job, const Timeline& step);

}  // namespace flopcast
