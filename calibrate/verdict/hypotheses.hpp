#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/imports.hpp"
#include "calibrate/runs/own_steps.hpp"
#include "calibrate/verdict/trace_steps.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

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
