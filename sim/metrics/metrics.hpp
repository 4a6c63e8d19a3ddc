#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/schedules/catalogue.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// The transfer that each action waits for: the one that brings its stage the activation (F) or the gradient (B, I) of
/// its microbatch.
class AwaitedTransfers {
 public:
  explicit AwaitedTransfers(const Timeline& timeline);

  /// Null if the action waits for no transfer.
  const Transfer* find(const Action& action) const;

 private:
  static std::uint64_t key(std::uint16_t stage, bool forward, std::uint32_t microbatch) {
    return (std::uint64_t{microbatch} << 17) | (std::uint64_t{stage} << 1) | std::uint64_t{forward};
  }
  struct Entry {
    std::uint64_t key;
    const Transfer* transfer;
  };
  std::uint64_t slot_of(std::uint64_t stage, bool forward, std::uint64_t microbatch) const {
    return (microbatch * stages_ + stage) * 2 + (forward ? 1 : 0);
  }
  std::uint64_t stages_ = 0;
  std::vector<const Transfer*> slots_;  // indexed by slot_of, if the numbers are dense
  std::vector<Entry> entries_;          // sorted by key, if they are not
};

/// Cause of a rank's idle time.
enum class BubbleCause { kWarmup, kCooldown, kImbalance, kDependency };
template <>
struct EnumNames<BubbleCause> {
  static constexpr std::string_view kNames[] = {"warmup", "cooldown", "imbalance", "dependency"};
};
inline constexpr std::size_t kBubbleCauses = std::size(EnumNames<BubbleCause>::kNames);

/// How a rank spends the time from 0 to the makespan of all ranks. Every tick is counted once:
///   busy + exposed_pipeline + exposed_data_parallel + bubble = makespan.
///
/// - busy: the compute stream runs an action (recomputation included) or the optimizer. An overlapped pair counts once.
/// - exposed_data_parallel: a reduction, the gradient norm or the parameter gather runs while no computation does.
/// - exposed_pipeline: a send occupies the compute stream; or nothing runs, the compute stream's next action waits for
///   a transfer, and that transfer is in progress.
/// - bubble: nothing runs for any other reason. It is warm-up before the rank's first B or I (its first action, if it
///   has none), and cool-down after that and after the rank's last F. The rest is imbalance as far as this rank
///   computes less than the busiest one, and dependency beyond that.
struct RankMetrics {
  Ticks busy = 0;
  Ticks exposed_pipeline = 0;
  Ticks exposed_data_parallel = 0;
  std::array<Ticks, kBubbleCauses> bubble_by_cause{};
  Ticks first_start = 0;  ///< of actions and sends, not of the flush
  Ticks last_end = 0;
  int peak_in_flight = 0;  ///< chunks whose activations are held: +1 at F, -1 at B or W, in order of execution
  std::array<Ticks, kSpanKindCount>
      time_by_kind{};  ///< indexed by SpanKind, overlapped or not; an overlapped pair counts as its first action

  Ticks bubble() const;
  Ticks exposed() const { return exposed_pipeline + exposed_data_parallel; }
  /// last_end - first_start, which zero-bubble papers measure instead of the makespan.
  Ticks span() const { return last_end - first_start; }
};

struct TimelineMetrics {
  Ticks makespan = 0;
  std::vector<RankMetrics> ranks;

  /// 1 - sum of busy / (ranks * makespan): the idle fraction of the devices, whatever they wait for. In [0, 1].
  double idle_fraction() const;
  /// The idle fraction of one rank.
  double idle_fraction(std::size_t rank) const;
  /// Sum of bubble / (ranks * makespan): idle_fraction() without the exposed communication.
  double bubble_fraction() const;
  /// makespan / (busy time of the busiest rank) - 1, the overhead that pipeline papers report. 0 if no rank is ever
  /// busy.
  double bubble_ratio() const;
  Ticks longest_span() const;
  /// Means over ranks, in ticks.
  double mean(Ticks RankMetrics::*part) const;
  double mean_bubble(BubbleCause cause) const;
};

/// Linear in spans and transfers. Accepts forecast and measured timelines alike.
TimelineMetrics measure(const Timeline& timeline);
/// Extrapolates the metrics of a repeating step to `periods` more periods than `shorter` has; `longer` has one more.
TimelineMetrics repeated(const TimelineMetrics& shorter, const TimelineMetrics& longer, std::int64_t periods);

/// Memory that a rank holds from `time` until the next point.
struct MemoryPoint {
  Ticks time = 0;
  double bytes = 0.0;
};

struct RankMemory {
  std::vector<MemoryPoint> points;  ///< in order of time, one per change; the first is the base at 0
  double peak_bytes = 0.0;
  std::vector<std::int64_t> held_at_peak;  ///< activations held, indexed by stage: microbatches, or slices of them
};

/// Bytes that an action leaves behind for a stage's microbatch, or slice of one.
struct HeldBytes {
  double from_forward = 0.0;          ///< from the start of F to the end of B or I
  double after_input_gradient = 0.0;  ///< from the end of I to the end of W
};

/// Bytes a rank holds over time: `base_bytes` (weights, gradients, optimizer) and, for each microbatch, the activations
/// of each stage from the start of its F to the end of its B or W. `held_bytes` is indexed by stage. Memory freed at an
/// instant is released before the rank's next action allocates. Left out: fragmentation, and buffers that live within
/// one action.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<double>& held_bytes);
/// Same, for an input gradient that frees part of the bytes or leaves more behind.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<HeldBytes>& held_bytes);

/// One piece of work on the critical path.
struct CriticalStep {
  int rank = 0;  ///< for a collective, the rank on which the path arrives
  Span span;
  Ticks wait = 0;  ///< time before it that nothing on the path explains; 0 in a simulated timeline
  Ticks time = 0;  ///< its part on the path: until its end, or until the reduction that overlaps with the rest of it
  Ticks lag = 0;   ///< time after it: the transfer to the next step
};

/// A chain of spans, each started by the one before, that explains the makespan:
///   sum over steps of wait + time + lag = makespan, exactly.
/// Shortening any step shortens the run until another chain becomes critical.
struct CriticalPath {
  std::vector<CriticalStep> steps;  ///< from first to last
  Ticks wait = 0;
  Ticks lag = 0;
  std::array<Ticks, 10> time_by_kind{};  ///< indexed by SpanKind; an overlapped pair counts for its first half

  Ticks total() const;
};

/// Among all chains of constraints (order on a stream, transfers, flush order, collectives) from time 0 to the last
/// end, the one with the least unexplained wait: a shortest path in an acyclic graph whose edge from u to v costs
/// start(v) - end(u) - lag. Every link of a simulated timeline is tight, so the wait is 0 there; in a measured timeline
/// it is the time that the model cannot explain. Linear in spans and transfers.
CriticalPath critical_path(const Timeline& timeline);

/// A span that others may wait for. Both halves of an overlapped pair are one node, as are all parts of a collective.
struct SpanNode {
  const Span* span = nullptr;  ///< null for the source
  int rank = 0;
};

/// `to` cannot start until `lag` after the end of `from`; it started `wait` later than that. The lag is negative if
/// `to` needs only the first part of `from`, like a reduction of gradients that are ready early.
struct SpanLink {
  std::size_t from = 0;
  std::size_t to = 0;
  Ticks lag = 0;
  Ticks wait = 0;
};

/// The constraints between the spans of a timeline. Node 0, the source, ends at time 0 and precedes everything.
struct SpanGraph {
  static constexpr std::size_t kSource = 0;
  std::vector<SpanNode> nodes;
  std::vector<SpanLink> links;
  std::vector<std::vector<std::size_t>> node_of;  ///< indexed by rank and position among the rank's spans
};

/// Builds the graph from the order on streams; transfers; the flush of a rank, whose spans follow each other and the
/// rank's last action, or, while that is running, the part of it completed when the reduction began; and the
/// collectives (embedding reduction, gradient norm), which wait for all of their ranks.
SpanGraph build_span_graph(const Timeline& timeline);

/// The times shared by all stages and boundaries; nullopt if they differ.
std::optional<UniformTimes> uniform_times(const StepTimes& times);

struct ClosedFormAnswer {
  std::optional<Ticks> makespan;
  std::string note;  ///< why there is none, or by how much `simulated` differs; empty if the two agree
};

/// The catalogue's closed form for a request that is not refused or, if it does not apply, the reason: found by
/// evaluating it again without latency and for a whole multiple of p microbatches.
ClosedFormAnswer closed_form_of(const ScheduleInfo& info, const ScheduleRequest& request, const StepTimes& times,
                                Ticks simulated);

/// Returns the times of a schedule's stages, such that a microbatch costs the same under every compared schedule.
using TimesOfProgram = std::function<StepTimes(const Program&)>;

/// Cost of a request under one schedule. Activations are counted in microbatches: 1 is what one microbatch leaves on
/// one rank over all of the rank's chunks (or slices), so that schedules of different v are comparable.
struct ScheduleFigures {
  Ticks makespan = 0;
  Ticks span = 0;                        ///< longest of all ranks, from the rank's first start to its last end
  double bubble_fraction = 0.0;          ///< idle fraction of all ranks, as in `schedule simulate`
  double bubble_ratio = 0.0;             ///< makespan over the busiest rank's work, minus 1
  std::vector<double> peak_activations;  ///< indexed by rank
  std::vector<int> weight_copies;        ///< indexed by rank: versions times copies of the model on the rank
  std::vector<int> staleness;            ///< indexed by rank, in updates
  std::size_t messages = 0;              ///< transfers between ranks
  std::optional<Ticks> closed_form;      ///< closed form of the makespan
  std::string closed_form_note;          ///< why there is none, or why it differs; empty if it agrees
  std::optional<double> steady_period;   ///< asynchronous schedules: ticks per microbatch with a full pipeline
  std::optional<double> steady_idle;     ///< and the idle fraction of its ranks then

  double largest_peak() const;
};

ScheduleFigures figures_of(const ScheduleInfo& info, const ScheduleRequest& request, const TimesOfProgram& times);
/// For a schedule from a file, which flushes and has no closed form.
ScheduleFigures figures_of(const Program& program, const TimesOfProgram& times);

/// How a schedule uses a limited memory for activations.
struct MemoryFit {
  int microbatches = 0;    ///< the most that fit between two updates, at most those requested; 0: not even the fewest
  bool unlimited = false;  ///< more microbatches need no additional memory
  double bubble_fraction = 0.0;  ///< with `microbatches`
};

/// The largest number of microbatches for which no rank holds more than `activations` (in microbatches) at once. A
/// schedule that accepts a memory limit gets this one. Asynchronous schedules never flush, so they keep the requested
/// number of microbatches.
MemoryFit fit_into_memory(const ScheduleInfo& info, const ScheduleRequest& request, int activations,
                          const TimesOfProgram& times);

/// The bottleneck of a pipeline that never flushes: actions that wait for each other in a repeating cycle.
struct CriticalCycle {
  struct Step {
    int rank = 0;
    Action action;  ///< with the lowest microbatches for which the cycle holds
  };
  std::vector<Step> steps;  ///< in order of time; after the last the first follows again, `microbatches` later
  Ticks time = 0;           ///< time of one round: durations, and latencies between ranks
  int microbatches = 0;     ///< number by which the microbatches grow in one round

  double period_ticks() const { return static_cast<double>(time) / static_cast<double>(microbatches); }
  /// The rank, if all actions belong to one rank: it never waits.
  std::optional<int> only_rank() const;
};
/// "0F0 1F0 1B0 0B0, then 0F2"; for more than twelve actions only the first and the last four.
std::string describe(const CriticalCycle& cycle);

/// The maximum cycle ratio of the steady state's constraint graph. Its nodes are the actions of as many microbatches as
/// the order repeats over; its arcs are their order on a rank and the transfers, each with the time from start to start
/// and the number of microbatches by which it advances. The largest time per microbatch of any cycle is the period to
/// which every start converges (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992, theorem
/// 3.28). Found by Howard's algorithm; among several critical cycles, one of a rank that never waits is preferred.
///
/// `generate` returns the schedule for any number of microbatches. Returns nullopt if its order does not repeat or
/// contains overlapped pairs.
std::optional<CriticalCycle> critical_cycle(const std::function<Program(int microbatches)>& generate,
                                            const StepTimes& times);

/// Microbatches after which the ranks' turns repeat: the least common multiple of the stages' replica counts.
int microbatches_per_turn(const Program& program);

/// `to` starts at least `time` after `from`, `advance` microbatches (or other repeating rounds) later.
struct TimedArc {
  std::size_t from = 0;
  std::size_t to = 0;
  Ticks time = 0;
  int advance = 0;

  friend bool operator==(const TimedArc& a, const TimedArc& b) {
    return a.from == b.from && a.to == b.to && a.time == b.time && a.advance == b.advance;
  }
};

/// The arcs, in order, of a cycle with the largest ratio of summed times to summed advances; empty if there is no
/// cycle. Every cycle must advance: its sum of advances must be positive, or its actions would wait for each other
/// forever.
///
/// Howard's algorithm in floating point finds a candidate; it may stop early if several cycles interlock. Exact integer
/// arithmetic then searches for a better cycle (Bellman-Ford with time * A - advance * T, where T / A is the candidate)
/// until there is none. If products exceed 64 bits, the candidate remains unproven.
std::vector<TimedArc> maximum_ratio_cycle(const std::vector<TimedArc>& arcs, std::size_t nodes);

/// The regime to which a pipeline that never flushes converges.
struct SteadyState {
  Ticks window_ticks = 0;       ///< growth of the makespan with `window_microbatches` more microbatches
  int window_microbatches = 0;  ///< whole rounds of the critical cycle
  int start_microbatches = 0;   ///< start of the last window
  bool periodic = false;        ///< converged: the period is exact
  double fill_ticks = 0.0;      ///< makespan minus microbatches * period: filling and draining, paid once
  double idle_fraction = 0.0;   ///< of the devices within the window, whatever they wait for

  double period_ticks() const { return static_cast<double>(window_ticks) / static_cast<double>(window_microbatches); }
};

/// Simulates growing numbers of microbatches until two consecutive windows take the same time, the one that
/// critical_cycle() predicts. A window is at least 4 microbatches per rank, in whole rounds of that cycle; it starts 1,
/// 2, 4 … up to 64 windows into the run, because uneven stages converge slowly. Beyond that the last window is reported
/// with `periodic` unset and with the length that the cycle predicts. For a schedule without such a cycle (overlapped
/// pairs) two equal windows suffice.
SteadyState steady_state(const std::function<Program(int microbatches)>& generate, const StepTimes& times);

}  // namespace flopcast
