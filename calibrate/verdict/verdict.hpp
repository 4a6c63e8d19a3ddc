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

/// What a device was doing at a moment, as far as an overlay tells it apart.
enum class TracedState { kCompute, kCommunication, kBoth, kIdle };

/// A stretch of one state, in seconds from the step's start.
struct TracedStretch {
  double start_s = 0.0;
  double end_s = 0.0;
  TracedState state = TracedState::kIdle;
};

/// Why a device had nothing to do. By what the host did meanwhile: waiting for a batch; allocating or freeing device
/// memory; launching too late, which shows where the launch of the next kernel began after the one before had ended.
/// kOther: none of these, such as waiting for another rank without a kernel.
enum class IdleCause { kData, kMemory, kLaunch, kOther };
inline constexpr std::size_t kIdleCauses = 4;
template <>
struct EnumNames<IdleCause> {
  static constexpr std::string_view kNames[] = {"data", "memory", "launch", "other"};
};

/// One step of one rank. Seconds; stretches of time are counted once, however many kernels run in them.
struct TracedStep {
  std::string name;  ///< "ProfilerStep#3"; empty where the trace marks no steps
  double time_s = 0.0;
  double compute_s = 0.0;        ///< kernels other than communication run
  double communication_s = 0.0;  ///< communication runs, hidden or not
  double exposed_s = 0.0;        ///< of it, beside no other kernel
  double idle_s = 0.0;           ///< no kernel runs
  std::array<double, kIdleCauses> idle_by_cause_s{};
  std::array<TraceTime, kTraceWorkCount> work{};  ///< by TraceWork: kernels and the sum of their times
  long attention_forward = 0;                     ///< kernels of fused attention
  long attention_backward = 0;
  double forward_s = 0.0;                        ///< in forward passes; 0: not told
  std::map<std::string, TraceTime> collectives;  ///< by kind and group size: "all_reduce of 8"
  std::vector<TracedStretch> stretches;          ///< in order, without holes

  double overlapped_s() const { return std::max(0.0, communication_s - exposed_s); }
};

/// The steps of one rank's trace.
struct TracedRank {
  std::string file;
  std::optional<int> rank;
  std::string device;
  std::vector<TracedStep> steps;
  bool tells_host = false;  ///< when the host came to each kernel is in it
  /// Communication holds no waiting for the other side: messages are timed from when they were sent. Kernels of NCCL
  /// also last while they wait.
  bool waits_apart = false;

  /// The one of median time.
  const TracedStep& typical() const;
};

struct TracedSpan {
  double start = 0.0;
  double end = 0.0;
};

/// What a device did from moment to moment of the window, from the spans in which it computed and communicated.
std::vector<TracedStretch> stretches_of(const std::vector<TracedSpan>& compute,
                                        const std::vector<TracedSpan>& communication, const TracedSpan& window);

/// Work of a device, as the formats of traces have it in common.
struct TracedKernel {
  TracedSpan span;
  TraceWork work = TraceWork::kOther;
  std::optional<std::int64_t> launch = {};  ///< the call that launched it, if any: a key of TracedEvents::launches
  bool attends_forward = false;
  bool attends_backward = false;
  bool passes_forward = false;  ///< a whole forward pass
  std::string collective = {};  ///< of communication: "all_reduce of 8"
};

/// What a reader finds of one rank, in seconds of one clock, in any order.
struct TracedEvents {
  TracedRank rank;  ///< still without steps
  std::vector<TracedKernel> kernels;
  std::vector<std::pair<std::string, TracedSpan>> marks;  ///< steps by name
  std::unordered_map<std::int64_t, double> launches;      ///< when the host came to launch
  std::vector<TracedSpan> data;                           ///< the host waits for a batch
  std::vector<TracedSpan> memory;                         ///< the host allocates or frees device memory

  /// A kernel by its name, or a copy. `group`: ranks of a collective; 0: not told.
  void add_kernel(const std::string& name, bool copies, const TracedSpan& span, std::optional<std::int64_t> launch,
                  const std::string& collective, int group);
  /// What the host does: counts by its name where a device may wait for it. Its "ProfilerStep#3" are marks, unless
  /// others are looked for.
  void add_host(const std::string& name, const TracedSpan& span, bool marks_steps = true);
};

/// A step reaches from one mark to the next; the last to its own end. Where none is marked, all of the trace is cut
/// into as many equal steps as `step_s` goes into it, 0 counting as one. Kernels that cross an end count on both sides.
/// There must be kernels.
TracedRank cut_into_steps(TracedEvents events, double step_s);

/// Reads the steps of a Kineto trace (torch.profiler of PyTorch 1.12 to 2.9, ROCm's too), whose "ProfilerStep#N" of the
/// host are the marks. Throws ConfigError like read_trace.
TracedRank read_traced_rank(std::istream& stream, const std::string& file, double step_s);

/// Steps of one's own runs: each rank's spans, with the wait for a message while it is on its way as communication, the
/// rest of the time before a span as launched late where nothing was to be waited for. Steps that warm up are left out.
std::vector<TracedRank> traced_run(const std::vector<Timeline>& steps, const std::string& file, double step_s);

/// Reads one's own run from a flopcast.measurement/1, and from a trace by write_chrome_trace(). Throw ConfigError.
std::vector<TracedRank> read_own_run(const std::string& text, const std::string& file, double step_s);
std::vector<TracedRank> read_own_trace(std::istream& stream, const std::string& file, double step_s);

/// Reads a Chakra execution trace (MLCommons, schema/protobuf/et_def.proto 0.0.4: GlobalMetadata and Nodes, each behind
/// its length; the metadata has a version, or attributes alone). Work of the device is COMP, MEM_LOAD, MEM_STORE and
/// COMM nodes but those with is_cpu_op; these are the host's. Where no node says when it began, a node begins when
/// those that it depends on have ended: what other ranks hold up is then unknown, and communication lasts as long as
/// its nodes say. The rank is that of the file's name, "llama.3.et" or "llama.3.et.gz". Throws ConfigError with the
/// file: what is no such message, or holds no duration.
TracedRank read_chakra_steps(std::istream& stream, const std::string& file, double step_s);

/// Reads the SQLite export of Nsight Systems (nsys export --type sqlite; schemas of 2020 to 2026): kernels, copies and
/// fills of each device and process, calls of the CUDA runtime, and NVTX ranges. Ranges named as a step with its number
/// ("ProfilerStep#3", "iteration 12", "step_7") are marks; so are steps of flopcast-run, whose ranges are the actions,
/// up to "the end of the step". Ranks that are threads of one process there are told apart by the thread that launches.
/// Throws ConfigError: no such database, no kernels, graphs traced as a whole.
std::vector<TracedRank> read_nsight_steps(const std::string& path, double step_s);

/// Told by what is in the file. kOwnRun and kOwnTrace: what `flopcast run` writes with -o and with --trace.
enum class TraceFormat { kKineto, kOwnRun, kOwnTrace, kChakra, kNsight };
TraceFormat trace_format_of(const std::string& path);

/// A file of any of them; all but Nsight's may be gzip. Throws ConfigError.
std::vector<TracedRank> read_traced_file(const std::string& path, double step_s);

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
