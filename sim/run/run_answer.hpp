#pragma once

#include <optional>
#include <vector>

#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

/// The run that a job's section `failures` asks about, of the steps that were forecast.
///
/// Steps: of training.tokens; without them 30 days of steps. Their times come from the step's simulation: with all
/// replicas, with fewer (each keeps its microbatches, so that the batch shrinks with them; at most 64 numbers of
/// replicas are simulated, those between lie on straight lines), with a slow device (sim/variation).
/// Rates, detection and repair as the causes say. Checkpoints: goodput.hpp; intervals that nobody gives are Daly's
/// best for what returns to that level, in whole steps, and no shorter than a write in the background.
/// Replicas keep their state where each holds the whole model (ddp without ZeRO, hsdp).
/// Throws ConfigError for runs of more than 2.8 years or five million events.
RunCase run_case_of(const Forecast& forecast);

/// One run to look at: that of the median days.
struct RunLife {
  RunCase run;
  RunOutcome outcome;
  std::vector<RunSpan> spans;  ///< in the order of their ends
};

/// Whether RunResult::options is filled in: what changes to the section buy, each drawn with the same seeds as the run
/// itself, 50 times at most: half and twice the interval, no spares, as many as 95 % need, detection in half the time,
/// checkpoints beside the steps and in memory, fewer replicas instead of waiting, slow nodes replaced after an hour.
enum class WithOptions { kNo, kYes };

/// Adds RunResult to the result, and what it rests on to its assumptions; returns the life of the median run. Nothing
/// where the job has no `failures`. A run that never ends (see Goodput::finishes) gives a warning instead.
std::optional<RunLife> add_run(Forecast& forecast, WithOptions with_options);

/// The smallest number of nodes that a Poisson distributed number of those in repair exceeds with at most 1 - share.
int spares_for(double mean_in_repair, double share);
/// The number s of spare nodes for which spares and waits together cost least, all `nodes` waiting as one: the least
/// s + nodes · P(N > s), in nodes that stand idle.
int spares_worth(double mean_in_repair, int nodes);

}  // namespace flopcast
