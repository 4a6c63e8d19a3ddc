#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/imports.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/verdict/trace_steps.hpp"
#include "model/job.hpp"
#include "sim/files/compared_run.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/as_run.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
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

/// Why a step took another time than forecast.
enum class GapCause {
  kSlowLink,
  kNoOverlap,
  kHostBound,
  kClocks,
  kDataLoader,
  kStraggler,
  kRecompute,
  kMemoryPressure,
};
template <>
struct EnumNames<GapCause> {
  static constexpr std::string_view kNames[] = {"slow-link",   "no-overlap", "host-bound", "clocks",
                                                "data-loader", "straggler",  "recompute",  "memory-pressure"};
};
inline constexpr std::size_t kGapCauses = 8;

struct Hypothesis {
  GapCause cause = GapCause::kSlowLink;
  double score = 0.0;       ///< share of belief among the eight
  double explains_s = 0.0;  ///< of the gap, measured less forecast
  std::string evidence;     ///< what speaks for it, or against it
  std::string check;        ///< what would confirm it
};

/// What is known of the run beside the forecast.
struct GapEvidence {
  double measured_s = 0.0;
  std::optional<StepsOfLog> steps;
  std::optional<TrainingLog> log;
  std::vector<TracedRank> traces;  ///< of as many ranks as were traced
  std::vector<Sample> products;    ///< that the traces tell with shape and format (read_trace)
};

/// What traces show of a step, beside what the forecast says.
struct TracedFigures {
  double time_s = 0.0;
  double compute_s = 0.0;        ///< median over ranks
  double more_compute_s = 0.0;   ///< than forecast, of the usual rank
  double apart_s = 0.0;          ///< by which one rank computes for longer than that
  std::string slowest;           ///< which, and how long
  double communication_s = 0.0;  ///< of the rank that communicates, and so waits, least
  double exposed_s = 0.0;        ///< of the same rank
  double mean_exposed_s = 0.0;
  std::array<double, kIdleCauses> idle_s{};  ///< median over ranks
  double forwards_per_backward = 0.0;        ///< of attention; 0: not told
  double forward_slowdown = 0.0;             ///< forward passes over their forecast; 0: not told
  double leading_idle_s = 0.0;  ///< before the first kernel of a step, beyond what is forecast, median over ranks
  double hidden_share = 0.0;    ///< of communication, over all ranks
  bool tells_host = false;
  bool waits_apart = false;
};
/// What a rank of the forecast's pipeline waits for others is taken off its messages: kernels that receive do the
/// waiting.
TracedFigures figures_of(const std::vector<TracedRank>& traces, const Forecast& answer);

/// 0 of none.
double median_of_values(std::vector<double> values);

/// Every cause, the most believed first. Each explains a part x of the gap g; its belief grows with
///
///   prior · likelihood(x, g) · evidence
///
/// Without a trace x is what a forecast of the job with that cause says: overlap off, everything recomputed, the host,
/// the devices' clocks or one link as slow as the gap needs, and the likelihood falls with how far x misses g and with
/// how extreme that is (a clock at 40 %, a link at 1 %). With traces x is what they show: kernels' times and counts,
/// what is hidden, gaps by what the host did, and how ranks differ, each beside the forecast. A link is slow where the
/// rank that waits least still communicates for longer than forecast; where a trace keeps waiting apart
/// (TracedRank::waits_apart), the rank that it costs most. One rank is slow where it exceeds the forecast of its place
/// in the pipeline by more than the median rank does. Kernels that run for longer are slow, or run again: forward
/// kernels of attention for each backward one tell, else products of known shape beside the model's, else how well
/// recomputing everything would stand for the excess. The log adds how steps differ from each other, timers over ranks
/// (Megatron's --timing-log-level), and memory. Left out: two causes at once, of which both are listed, and causes that
/// are none of the eight. Traces that tell no ranks are numbered where they are those of all. Throws ConfigError: a run
/// of our own with another number of ranks in its pipeline than the job.
std::vector<Hypothesis> explain_gap(const Forecast& answer, const GapEvidence& evidence, const ReadFile& read_file);

}  // namespace flopcast
