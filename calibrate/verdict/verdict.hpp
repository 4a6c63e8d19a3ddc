#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "calibrate/device/imports.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "model/job.hpp"
#include "sim/files/compared_run.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// The first steps of each calibration warm up and are dropped.
inline constexpr std::size_t kCalibrationWarmup = 2;

/// State of a device at one moment, as far as an overlay distinguishes it.
enum class TracedState { kCompute, kCommunication, kBoth, kIdle };

/// An interval of one state, in seconds from the start of the step.
struct TracedInterval {
  double start_s = 0.0;
  double end_s = 0.0;
  TracedState state = TracedState::kIdle;
};

/// Why a device was idle, inferred from what the host did meanwhile: waiting for a batch, allocating or freeing device
/// memory, or launching late (the launch of the next kernel began after the previous kernel had ended). kOther: none of
/// these, such as waiting for another rank without a kernel.
enum class IdleCause { kData, kMemory, kLaunch, kOther };
inline constexpr std::size_t kIdleCauses = 4;
template <>
struct EnumNames<IdleCause> {
  static constexpr std::string_view kNames[] = {"data", "memory", "launch", "other"};
};

/// One step of one rank. In seconds; overlapping kernels count once.
struct TracedStep {
  std::string name;  ///< "ProfilerStep#3"; empty if the trace marks no steps
  double time_s = 0.0;
  double compute_s = 0.0;        ///< some kernel other than communication runs
  double communication_s = 0.0;  ///< communication runs, hidden or not
  double exposed_s = 0.0;        ///< part of it without any other kernel
  double idle_s = 0.0;           ///< no kernel runs
  std::array<double, kIdleCauses> idle_by_cause_s{};
  std::array<TraceTime, kTraceWorkCount> work{};  ///< by TraceWork: number of kernels and sum of their times
  long attention_forward = 0;                     ///< fused-attention kernels
  long attention_backward = 0;
  double forward_s = 0.0;                        ///< in forward passes; 0: unknown
  std::map<std::string, TraceTime> collectives;  ///< by kind and group size: "all_reduce of 8"
  std::vector<TracedInterval> stretches;         ///< in order, without gaps

  double overlapped_s() const { return std::max(0.0, communication_s - exposed_s); }
};

/// Steps in the trace of one rank.
struct TracedRank {
  std::string file;
  std::optional<int> rank;
  std::string device;
  std::vector<TracedStep> steps;
  bool has_launches = false;  ///< the trace has the time of each launch
  /// Communication excludes waiting for the other side: messages are timed from when they were sent. NCCL kernels, in
  /// contrast, also last while they wait.
  bool waiting_separate = false;

  /// The step of median time.
  const TracedStep& typical() const;
};

struct TracedSpan {
  double start = 0.0;
  double end = 0.0;
};

/// States of a device over the window, from the spans in which it computed and communicated.
std::vector<TracedInterval> stretches_of(const std::vector<TracedSpan>& compute,
                                         const std::vector<TracedSpan>& communication, const TracedSpan& window);

/// Work of a device, in the form that all trace formats share.
struct TracedKernel {
  TracedSpan span;
  TraceWork work = TraceWork::kOther;
  std::optional<std::int64_t> launch = {};  ///< key in TracedEvents::launches of the call that launched it, if any
  bool attends_forward = false;
  bool attends_backward = false;
  bool passes_forward = false;  ///< a whole forward pass
  std::string collective = {};  ///< if communication: "all_reduce of 8"
};

/// Everything a reader finds about one rank, in seconds of one clock, in any order.
struct TracedEvents {
  TracedRank rank;  ///< its steps are added later
  std::vector<TracedKernel> kernels;
  std::vector<std::pair<std::string, TracedSpan>> marks;  ///< steps with their names
  std::unordered_map<std::int64_t, double> launches;      ///< time at which the host began each launch
  std::vector<TracedSpan> data;                           ///< the host waits for a batch
  std::vector<TracedSpan> memory;                         ///< the host allocates or frees device memory

  /// Adds a kernel, classified by its name, or a copy. `group`: ranks of a collective; 0: unknown.
  void add_kernel(const std::string& name, bool copies, const TracedSpan& span, std::optional<std::int64_t> launch,
                  const std::string& collective, int group);
  /// Adds activity of the host, if its name indicates that a device may wait for it. Its "ProfilerStep#3" become marks
  /// if `marks_steps`.
  void add_host(const std::string& name, const TracedSpan& span, bool marks_steps = true);
};

/// Cuts a trace into steps. A step lasts from one mark to the next, the last one to its own end. Without marks, the
/// whole trace is cut into round(length / step_s) equal steps; 0 counts as one. Kernels that cross a boundary count on
/// both sides. There must be kernels.
TracedRank cut_into_steps(TracedEvents events, double step_s);

/// Reads the steps of a Kineto trace (torch.profiler of PyTorch 1.12 to 2.9, also ROCm's), whose host events
/// "ProfilerStep#N" are the marks. Throws ConfigError like read_trace.
TracedRank read_traced_rank(std::istream& stream, const std::string& file, double step_s);

/// Steps of runs of `flopcast run`: the spans of each rank. While a message is on its way, waiting for it counts as
/// communication; if there is nothing to wait for, the rest of the time before a span counts as a late launch. Warm-up
/// steps are left out.
std::vector<TracedRank> traced_run(const std::vector<Timeline>& steps, const std::string& file, double step_s);

/// Reads a run of `flopcast run` from a flopcast.measurement/1, and from a trace by write_chrome_trace(). Both throw
/// ConfigError.
std::vector<TracedRank> read_user_run(const std::string& text, const std::string& file, double step_s);
std::vector<TracedRank> read_own_trace(std::istream& stream, const std::string& file, double step_s);

/// Reads a Chakra execution trace (MLCommons, schema/protobuf/et_def.proto 0.0.4: GlobalMetadata and Nodes, each
/// preceded by its length; the metadata has a version, or only attributes). COMP, MEM_LOAD, MEM_STORE and COMM nodes
/// are device work, unless they have is_cpu_op, which makes them host work. If no node has a start time, a node begins
/// when its dependencies have ended; delays by other ranks are then unknown, and communication lasts as long as its
/// nodes state. The rank comes from the file name, "llama.3.et" or "llama.3.et.gz". Throws ConfigError with the file:
/// messages that do not parse, or no duration.
TracedRank read_chakra_steps(std::istream& stream, const std::string& file, double step_s);

/// Reads the SQLite export of Nsight Systems (nsys export --type sqlite; schemas of 2020 to 2026): kernels, copies and
/// fills of each device and process, CUDA runtime calls, and NVTX ranges. Ranges named like a numbered step
/// ("ProfilerStep#3", "iteration 12", "step_7") are marks; so are the steps of flopcast-run, whose ranges are actions
/// up to "the end of the step". Ranks that are threads of one flopcast-run process are distinguished by the launching
/// thread. Throws ConfigError: an invalid database, no kernels, CUDA graphs traced as a whole.
std::vector<TracedRank> read_nsight_steps(const std::string& path, double step_s);

/// Detected from the content of the file. kOwnRun and kOwnTrace: written by `flopcast run` with -o and with --trace.
enum class TraceFormat { kKineto, kOwnRun, kOwnTrace, kChakra, kNsight };
TraceFormat trace_format_of(const std::string& path);

/// Reads a file of any of these formats; all but Nsight's may be gzip. Throws ConfigError.
std::vector<TracedRank> read_traced_file(const std::string& path, double step_s);

/// The program in the order in which it was executed: each rank's actions by their starts, in the given chains.
Program executed_program(const Timeline& timeline, const Program& planned);

/// Times that ranks took for their own work, without waiting, from timelines of equal steps. Medians:
///   actions     by stage and kind
///   gaps        from the end of an action to the start of the next one on its rank, which is only overhead if nobody
///               waits; `with_gaps` adds each gap to the action that follows
///   flush       by rank: the optimizer, and the remainder of the gradient reductions after the last action; the
///               reduction of tied embedding tables of the rank that arrived last
/// Without a flush, the updates between the actions count, spread evenly over the backward passes of their rank.
/// Transfers take no time.
StepTimes median_times(const std::vector<Timeline>& steps, const Program& program, bool with_gaps);

/// Forecast of a run from its calibration: median_times() with gaps, of each rank running alone; actions that sleep
/// take exactly their requested time; and messages. A message reaches the receiver one_way - receive after it was sent.
/// Receiving is the receiver's own time whether it waits or not (LogP's o) and counts with its action, because a rank
/// that runs alone copies its inputs too. `steps` come from one calibration or from both, without the warm-up
/// (warmed_up()).
StepTimes calibrated_times(const MeasuredRun& run, const std::vector<Timeline>& steps, const Program& program);

/// Drops the first two steps of a calibration, but keeps at least one.
std::vector<Timeline> warmed_up(const std::vector<Timeline>& calibration);

/// Mean loss of every step. An asynchronous run is divided into steps of `microbatches` microbatches or slices.
std::vector<double> step_losses(const MeasuredRun& run, int microbatches);

/// Number of counted steps in a run of `steps` steps, some of which warm up; an asynchronous schedule also drains for
/// one step.
int counted_steps(int steps, int warmup, bool asynchronous);

/// `as_run` supplies the forecast bytes, and the forecast memory if the forecast is calibrated: see memory_as_run().
RunComparison compare_run(Forecast job, const Result& as_run, const MeasuredRun& run, TimesFrom times_from);

/// The verdict on a run: compares `answer`, the forecast of `asked`, with the measurement, including the activations
/// that run and forecast keep if the ranks computed.
RunComparison judge_run(const Job& asked, Forecast answer, const MeasuredRun& run, TimesFrom times_from,
                        const ReadFile& read_file);

/// Cause of a difference between a step and its forecast.
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
  double score = 0.0;       ///< probability among the eight causes
  double explains_s = 0.0;  ///< part of the gap, measured minus forecast
  std::string evidence;     ///< evidence for or against it
  std::string check;        ///< how to confirm it
};

/// Everything known about a run besides its forecast.
struct GapEvidence {
  double measured_s = 0.0;
  std::optional<StepsOfLog> steps;
  std::optional<TrainingLog> log;
  std::vector<TracedRank> traces;  ///< only of the ranks that were traced
  std::vector<Sample> products;    ///< GEMMs whose shape and format the traces contain (read_trace)
};

/// Figures of a traced step, relative to the forecast.
struct TracedFigures {
  double time_s = 0.0;
  double compute_s = 0.0;           ///< median over ranks
  double more_compute_s = 0.0;      ///< computation beyond the forecast, of the median rank
  double straggler_excess_s = 0.0;  ///< excess of the slowest rank over it
  std::string slowest;              ///< the slowest ranks and their computation, as text
  double communication_s = 0.0;     ///< of the rank that communicates, and therefore waits, least
  double exposed_s = 0.0;           ///< of the same rank
  double mean_exposed_s = 0.0;
  std::array<double, kIdleCauses> idle_s{};  ///< median over ranks
  double forwards_per_backward = 0.0;        ///< of attention; 0: unknown
  double forward_slowdown = 0.0;             ///< forward passes over their forecast; 0: unknown
  double leading_idle_s = 0.0;  ///< before the first kernel of a step, beyond the forecast, median over ranks
  double hidden_share = 0.0;    ///< hidden share of communication, over all ranks
  bool has_launches = false;
  bool waiting_separate = false;
};
/// Waiting in the forecast's pipeline is subtracted from a rank's messages, because receiving kernels include it.
TracedFigures figures_of(const std::vector<TracedRank>& traces, const Forecast& answer);

/// All causes, most probable first. Each explains a part x of the gap g; its probability grows with
///
///   prior · likelihood(x, g) · evidence
///
/// Without a trace, x is the effect that a forecast of the job with that cause predicts: overlap off, everything
/// recomputed, or the host, the devices' clocks or one link as slow as the gap needs. The likelihood falls with the
/// distance of x from g and with how extreme the cause would be (a clock at 40 %, a link at 1 %). With traces, x is
/// what they show relative to the forecast: times and counts of kernels, hidden communication, idle time by host
/// activity, and differences between ranks. A link is slow if even the rank that waits least communicates for longer
/// than forecast; if the trace keeps waiting separate (TracedRank::waiting_separate), the rank with the most exposed
/// communication counts instead. A rank is slow if it exceeds the forecast for its place in the pipeline by more than
/// the median rank does. Kernels that take longer are either slow or run again: forward attention kernels per backward
/// one decide, else GEMMs of known shape compared with the model, else how well recomputing everything would explain
/// the excess. The log adds how steps vary, timers over ranks (Megatron's --timing-log-level), and memory. Not
/// modelled: two causes at once, of which both are listed, and causes other than the eight. Traces without ranks are
/// numbered if they cover all ranks. Throws ConfigError: a run of `flopcast run` whose pipeline has another number of
/// ranks than the job's.
std::vector<Hypothesis> explain_gap(const Forecast& answer, const GapEvidence& evidence, const ReadFile& read_file);

}  // namespace flopcast
